// Quantized copies of checkpoints: what becomes of each tensor and file, and what is left where there is none.
#include "models/weights/quantize/quantized_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/json_file.h"
#include "models/config/model_config.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weights.h"
#include "tests/kernels/numbers.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr QuantizedFormat kAllFormats[] = {QuantizedFormat::fp8_block, QuantizedFormat::fp8_row, QuantizedFormat::int4};

fs::path golden(const std::string& name) { return test::source_dir() / "tests/golden" / name; }
fs::path demo() { return test::source_dir() / "models/demo"; }

json config_of(const fs::path& folder) { return read_json_object(folder / "config.json", "test", 1 << 20); }

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::vector<float> values_of(const TensorInfo& tensor) {
  const auto rows = tensor.shape[0], cols = tensor.shape[1];
  std::vector<float> values(static_cast<size_t>(rows * cols));
  if (tensor.encoded != nullptr) {
    tensor.encoded->decode(0, rows, values);
    return values;
  }
  std::vector<std::byte> stored(tensor.bytes);
  tensor.file->read(tensor.offset, stored);
  EXPECT_EQ(tensor.dtype, Dtype::kBF16);
  for (size_t i = 0; i < values.size(); ++i) {
    bf16 element;
    std::memcpy(&element, stored.data() + 2 * i, 2);
    values[i] = test::value_of(element);
  }
  return values;
}

double relative_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i)
    error += std::pow(double{found[i]} - expected[i], 2), size += std::pow(double{expected[i]}, 2);
  return std::sqrt(error / size);
}

// Uniform and normal numbers lose 2.4 to 2.8 % in e4m3, and 8 to 11 % in int4 of groups: no matrix may lose twice that.
TEST(QuantizedCheckpoint, HoldsTheMatricesOfLayersAndTheRestAsItWas) {
  for (const QuantizedFormat format : kAllFormats)
    for (const fs::path& from : {demo(), golden("qwen3_moe/normed"), golden("phi3/short")}) {
      if (format == QuantizedFormat::int4 && from.filename() == "normed") continue;  // none has groups
      const ScratchFolder scratch;
      const fs::path to = scratch.path() / "out";
      uint64_t done = 0, total = 0;
      const QuantizedCheckpoint made = quantize_checkpoint(from, to, format, 3, {[&](uint64_t d, uint64_t t) {
                                                             EXPECT_GE(d, done);
                                                             done = d, total = t;
                                                           }});
      EXPECT_EQ(done, total);
      EXPECT_EQ(total, made.bytes_before);
      const Checkpoint before = Checkpoint::open(from), after = Checkpoint::open(to);
      ASSERT_NE(after.format(), nullptr);
      const ModelConfig config = read_model_config(to);
      uint64_t bytes = 0, matrices = 0;
      for (const TensorInfo& tensor : after.tensors()) bytes += tensor.bytes;
      EXPECT_EQ(bytes, made.bytes);
      weight_footprint(after, config);  // which refuses a tensor too many or too few
      for (const TensorInfo& tensor : before.tensors()) {
        if (tensor.shape.size() != 2) {
          ASSERT_NE(after.find(tensor.name), nullptr) << tensor.name;
          continue;
        }
        const TensorInfo& found = after.require(tensor.name, tensor.shape);
        const double difference = relative_difference(values_of(found), values_of(tensor));
        if (found.encoded == nullptr) {
          EXPECT_EQ(difference, 0) << tensor.name;
          continue;
        }
        ++matrices;
        EXPECT_GT(difference, 0) << tensor.name;
        EXPECT_LT(difference, format == QuantizedFormat::int4 ? 0.2 : 0.05) << tensor.name;
      }
      EXPECT_EQ(matrices, made.matrices) << from;
      EXPECT_GT(matrices, 0u);
    }
}

TEST(QuantizedCheckpoint, LeavesRoutersAndTheHeadAndNamesThem) {
  const ScratchFolder scratch;
  for (const QuantizedFormat format : {QuantizedFormat::fp8_block, QuantizedFormat::fp8_row}) {
    const fs::path to = scratch.path() / std::to_string(static_cast<int>(format));
    quantize_checkpoint(golden("qwen3_moe/normed"), to, format, 2);
    const json found = config_of(to).at("quantization_config");
    const json kept = found.at(format == QuantizedFormat::fp8_block ? "modules_to_not_convert" : "ignore");
    for (const char* name : {"lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"})
      EXPECT_TRUE(std::ranges::count(kept, json(name)) == 1) << name;
    const Checkpoint after = Checkpoint::open(to);
    EXPECT_EQ(after.find("model.layers.0.mlp.gate.weight")->dtype, Dtype::kBF16);
    EXPECT_EQ(after.find("model.layers.0.mlp.experts.0.up_proj.weight")->dtype, Dtype::kF8E4M3);
  }
}

TEST(QuantizedCheckpoint, HasTheShardsAndTheOtherFilesOfItsSource) {
  const ScratchFolder scratch;
  const fs::path from = scratch.path() / "from", to = scratch.path() / "to";
  fs::create_directory(from);
  const Checkpoint whole = Checkpoint::open(demo());
  std::vector<test::TestTensor> shards[2];
  json places = json::object();
  for (size_t i = 0; i < whole.tensors().size(); ++i) {
    const TensorInfo& tensor = whole.tensors()[i];
    std::vector<std::byte> data(tensor.bytes);
    tensor.file->read(tensor.offset, data);
    shards[i % 2].push_back({tensor.name, std::string(dtype_name(tensor.dtype)), tensor.shape, test::bytes_of(data)});
    places[tensor.name] = fmt::format("model-{}.safetensors", i % 2);
  }
  for (const int i : {0, 1}) write_text(from / fmt::format("model-{}.safetensors", i), test::safetensors_of(shards[i]));
  write_text(from / "model.safetensors.index.json", json{{"weight_map", places}}.dump());
  write_text(from / "pytorch_model.bin", "weights");
  write_text(from / "chat_template.jinja", "{{ x }}");
  fs::copy_file(demo() / "config.json", from / "config.json");
  fs::create_symlink(demo() / "tokenizer.json", from / "tokenizer.json");  // as in the hub's cache

  const QuantizedCheckpoint made = quantize_checkpoint(from, to, QuantizedFormat::fp8_row, 2);
  EXPECT_EQ(names_in(to),
            (std::vector<std::string>{"chat_template.jinja", "config.json", "model-0.safetensors",
                                      "model-1.safetensors", "model.safetensors.index.json", "tokenizer.json"}));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(to / "tokenizer.json")));
  const json index = read_json_object(to / "model.safetensors.index.json", "test", 1 << 20);
  EXPECT_EQ(index.at("metadata").at("total_size").get<uint64_t>(), made.bytes);
  const Checkpoint after = Checkpoint::open(to);  // which compares the index with the shards
  for (const TensorInfo& tensor : after.tensors()) {
    const std::string scaled = tensor.name.substr(0, tensor.name.find("_scale"));
    EXPECT_EQ(tensor.file->path().filename(), places.at(scaled).get<std::string>()) << tensor.name;
  }
}

TEST(QuantizedCheckpoint, LeavesMatricesOfOddWidthsAndSaysWhich) {
  const ScratchFolder scratch;
  const fs::path from = scratch.path() / "from";
  fs::create_directory(from);
  const auto zeros = [](int64_t n) { return std::string(static_cast<size_t>(n) * 2, '\0'); };
  const std::string l = "model.layers.0.";
  std::vector<test::TestTensor> tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    tensors.push_back({name, "F16", shape, zeros(shape[0] * (shape.size() > 1 ? shape[1] : 1))});
  };
  add("model.embed_tokens.weight", {5, 64});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(l + norm + ".weight", {64});
  for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"}) add(l + "self_attn." + part + ".weight", {64, 64});
  for (const char* part : {"gate_proj", "up_proj"}) add(l + "mlp." + part + ".weight", {40, 64});
  add(l + "mlp.down_proj.weight", {64, 40});
  add("model.norm.weight", {64});
  write_text(from / "model.safetensors", test::safetensors_of(tensors));
  write_text(from / "config.json",
             R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
                       "num_attention_heads": 1, "head_dim": 64, "intermediate_size": 40, "vocab_size": 5,
                       "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": true,
                       "bos_token_id": 1, "eos_token_id": 2})");
  const QuantizedCheckpoint made = quantize_checkpoint(from, scratch.path() / "int4", QuantizedFormat::int4, 2);
  EXPECT_EQ(made.matrices, 6u);
  EXPECT_EQ(made.too_odd, std::vector<std::string>{l + "mlp.down_proj.weight"});
  const json kept = config_of(scratch.path() / "int4").at("quantization_config").at("ignore");
  EXPECT_EQ(kept, (json{"lm_head", l + "mlp.down_proj"}));
  const QuantizedCheckpoint all = quantize_checkpoint(from, scratch.path() / "fp8", QuantizedFormat::fp8_block, 2);
  EXPECT_EQ(all.matrices, 7u);
  EXPECT_TRUE(all.too_odd.empty());
}

TEST(QuantizedCheckpoint, LeavesNothingWhereItFails) {
  const ScratchFolder scratch;
  const fs::path from = scratch.path() / "from", to = scratch.path() / "to";
  fs::copy(demo(), from);
  const std::vector<std::string> before = names_in(scratch.path());
  const auto fails = [&](std::initializer_list<std::string_view> words, const Progress& progress = {}) {
    expect_error([&] { quantize_checkpoint(from, to, QuantizedFormat::int4, 2, progress); }, words);
    EXPECT_EQ(names_in(scratch.path()), before);
  };
  const auto stops = [](uint64_t done, uint64_t total) {
    if (done > total / 2) throw Error({.doing = "go on", .detail = "stopped"});
  };
  fails({"stopped"}, {stops});

  const Checkpoint checkpoint = Checkpoint::open(from);
  const TensorInfo& up = *checkpoint.find("model.layers.2.mlp.up_proj.weight");
  {
    std::fstream file(from / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(up.offset + 2 * (7 * 192 + 3)));
    file.write("\xc0\x7f", 2);  // a NaN
  }
  fails({up.name, "row 7", "not finite"});
  fs::resize_file(from / "model.safetensors", fs::file_size(from / "model.safetensors") - 1);
  fails({"model.safetensors"});
  fs::remove(from / "model.safetensors");
  fails({"neither model.safetensors nor"});
}

TEST(QuantizedCheckpoint, RefusesByName) {
  const ScratchFolder scratch;
  const fs::path to = scratch.path() / "to";
  const auto refused = [&](const fs::path& from, std::initializer_list<std::string_view> words) {
    expect_error([&] { quantize_checkpoint(from, to, QuantizedFormat::fp8_row, 2); }, words);
    EXPECT_TRUE(names_in(scratch.path()).empty());
  };
  refused(golden("formats/ct_fp8_channel"), {"ct_fp8_channel", "quantized already", "fp8, a scale for each row"});
  refused(golden("gguf/llama/model.gguf"), {"model.gguf", "a GGUF file"});
  refused(golden("gpt2/exacting"), {"c_attn.weight", "inputs first"});
  expect_error([&] { quantize_checkpoint(golden("qwen3_moe/normed"), to, QuantizedFormat::int4, 2); },
               {"normed", "groups of 32", "fp8-row"});
  fs::create_directory(to);
  expect_error([&] { quantize_checkpoint(demo(), to, QuantizedFormat::fp8_row, 2); }, {to.string(), "exists already"});
  EXPECT_TRUE(names_in(to).empty());
}

}  // namespace
}  // namespace nodewright
