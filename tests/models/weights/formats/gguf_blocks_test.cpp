// GGUF: blocks of every type against gguf's own dequantize(), and files with something wrong in them.
#include <bit>
#include <cmath>
#include <functional>
#include <type_traits>

#include "base/gguf_file.h"
#include "models/config/model_config.h"
#include "tests/models/weights/formats/format_golden.h"

namespace nodewright {
namespace {

std::filesystem::path gguf_golden(const std::string& name) { return test::source_dir() / "tests/golden/gguf" / name; }

TEST(GgufBlocks, AreDecodedToTheBitsOfGguf) {
  const Checkpoint checkpoint = Checkpoint::open(gguf_golden("types.gguf"));
  const nlohmann::json expected = test::json_of(gguf_golden("types.json"));
  EXPECT_EQ(expected.size(), 13u);
  for (const auto& [name, about] : expected.items()) {
    const TensorInfo& tensor = checkpoint.require(name, about.at("shape").get<std::vector<int64_t>>());
    ASSERT_NE(tensor.encoded, nullptr) << name;
    EXPECT_EQ(tensor.encoded->format() + ".weight", name);
    for (const int64_t step : {3, 1})
      EXPECT_EQ(test::digest_of(test::decoded(tensor, step)), about.at("digest").get<std::string>()) << name;
  }
}

float value_of_half(uint32_t bits) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits))); }

// Scales that are products are rounded to fp16, and so are offsets.
TEST(GgufBlocks, AreTheSameNumbersInTheLayoutsOfKernels) {
  const Checkpoint checkpoint = Checkpoint::open(gguf_golden("types.gguf"));
  const nlohmann::json expected = test::json_of(gguf_golden("types.json"));
  int of_type[7] = {};
  for (const auto& [name, about] : expected.items()) {
    const std::vector<int64_t> shape = about.at("shape");
    const EncodedMatrix& matrix = *checkpoint.require(name, shape).encoded;
    const std::optional<WeightLayout> layout = matrix.group_layout();
    ASSERT_EQ(layout.has_value(), name != "MXFP4.weight") << name;
    if (!layout) continue;
    ++of_type[static_cast<int>(layout->code)];
    std::vector<float> values(static_cast<size_t>(shape[0] * shape[1]));
    std::vector<uint8_t> codes(values.size());
    matrix.decode(0, shape[0], values);
    matrix.group_codes(0, shape[0], codes);
    const std::vector<uint32_t> words = matrix.group_words(0, shape[0]);
    ASSERT_EQ(words.size(), static_cast<size_t>(shape[0] * layout->group_words(shape[1]))) << name;
    const bool has_offset = layout->group_bytes() == 4;
    const float rounded = name.find("_K") != std::string::npos || name == "IQ4_XS.weight" ? 0x1p-11f : 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t group = i / static_cast<size_t>(layout->group);
      const uint32_t half = has_offset ? words[group] : words[group / 2] >> group % 2 * 16;
      const float zero = has_offset              ? 0.0f
                         : layout->has_nibbles() ? 8.0f
                                                 : 128.0f,
                  offset = has_offset ? value_of_half(words[group] >> 16) : 0.0f,
                  product = value_of_half(half) * (static_cast<float>(codes[i]) - zero);
      ASSERT_LE(std::abs(product + offset - values[i]),
                rounded * (std::abs(product) + std::abs(offset)) + 0x1p-20f * rounded)
          << name << ", element " << i;
    }
  }
  EXPECT_EQ(std::vector(of_type, of_type + 7), (std::vector{0, 0, 0, 1, 2, 6, 3}));
}

// A copy of the golden Llama with some bytes changed.
struct GgufFault {
  std::function<void(std::string& bytes)> plant;
  std::vector<std::string> words;  // of the error
};

// Where the value of a key stands, after its type.
size_t value_at(const std::string& bytes, const std::string& key) { return bytes.find(key) + key.size() + 4; }
// Where the dimensions of a tensor stand: their number, each in 8 bytes, then the type and the offset.
size_t tensor_at(const std::string& bytes, const std::string& name) { return bytes.find(name) + name.size(); }

template <class T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

void read_all(const std::filesystem::path& file) {
  const ModelConfig config = read_model_config(file);
  const Checkpoint checkpoint = Checkpoint::open(file);
  const nlohmann::json expected = test::expected_matrices(gguf_golden("llama"));
  for (const auto& [name, about] : expected.items())
    checkpoint.require(about.at("stored").get<std::string>(), about.at("shape").get<std::vector<int64_t>>());
}

TEST(GgufBlocks, WithAScaleThatKernelsCannotMultiplyAreRefused) {
  std::string bytes = read_text(gguf_golden("types.gguf"));
  const size_t at = Checkpoint::open(gguf_golden("types.gguf")).find("Q8_0.weight")->offset;
  for (const uint16_t half : {0x6000, 0x7c00, 0x7e00}) {  // 512, infinity, NaN
    put(bytes, at + 5 * 34, half);
    const ScratchFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(folder.write("types.gguf", bytes));
    const EncodedMatrix& matrix = *checkpoint.require("Q8_0.weight", {3, 512}).encoded;
    expect_error([&] { matrix.group_words(0, 3); }, {"Q8_0.weight", "it has the scale", "beyond 511"});
  }
}

TEST(GgufFiles, MayNameTheExpertsOfOneTensorTogether) {
  const Checkpoint checkpoint = Checkpoint::open(gguf_golden("qwen3moe/model.gguf"));
  const TensorInfo *first = checkpoint.find("blk.0.experts.0.ffn_up_exps.weight"),
                   *last = checkpoint.find("blk.0.experts.3.ffn_up_exps.weight");
  ASSERT_TRUE(first != nullptr && last != nullptr);
  EXPECT_EQ(first->shape, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(first->bytes, 32u * 64 / 32 * 34);
  EXPECT_EQ(last->offset, first->offset + 3 * first->bytes);
}

// The file with another key, and one that keeps the alignment of the data.
template <class T>  // float, uint32_t or std::string
std::string with_key(std::string bytes, const std::string& key, const T& value) {
  std::string entries;
  const auto append = [&](auto number) { entries.append(reinterpret_cast<const char*>(&number), sizeof number); };
  append(uint64_t{key.size()});
  entries += key;
  if constexpr (std::is_same_v<T, std::string>) {
    append(uint32_t{8});
    append(uint64_t{value.size()});
    entries += value;
  } else {
    append(std::is_same_v<T, float> ? uint32_t{6} : uint32_t{4});
    append(value);
  }
  uint64_t keys = 0;
  std::memcpy(&keys, bytes.data() + 16, sizeof keys);
  const std::string pad = "pad " + std::to_string(keys);
  const size_t rest = (32 - (entries.size() + 8 + pad.size() + 4 + 8) % 32) % 32;
  append(uint64_t{pad.size()});
  entries += pad;
  append(uint32_t{8});
  append(uint64_t{rest});
  entries.append(rest, ' ');
  put(bytes, 16, keys + 2);
  return bytes.insert(24, entries);
}

TEST(GgufFiles, WithKeysThatNothingReadsAreRefusedUnlessTheyAreHarmless) {
  struct Key {
    const char* golden;
    const char* key;
    float harmful, harmless;
  };
  const Key keys[] = {{"qwen2", "qwen2.attention.scale", 0.5f, 0},
                      {"llama", "llama.rope.scaling.attn_factor", 1.5f, 1},
                      {"qwen3moe", "qwen3moe.expert_weights_scale", 2.5f, 1},
                      {"gemma3", "gemma3.final_logit_softcapping", 30, 0},
                      {"gemma3", "gemma3.rope.freq_base_swa", 1e6f, 10000}};
  for (const Key& one : keys) {
    const std::string whole = read_text(gguf_golden(one.golden) / "model.gguf");
    const ScratchFolder folder;
    read_model_config(folder.write("harmless.gguf", with_key(whole, one.key, one.harmless)));
    const std::filesystem::path file = folder.write("harmful.gguf", with_key(whole, one.key, one.harmful));
    expect_error([&] { read_model_config(file); }, {one.key, "not supported"});
  }
  // OLMo 3 has the name of OLMo 2.
  const ScratchFolder folder;
  const std::string olmo = read_text(gguf_golden("olmo2") / "model.gguf");
  const auto file = folder.write("m.gguf", with_key(olmo, "olmo2.attention.sliding_window", uint32_t{4096}));
  expect_error([&] { read_model_config(file); }, {"olmo2.attention.sliding_window", "not supported"});
}

TEST(GgufFiles, ScaleLinearlyWhereNoTypeSaysHow) {
  const std::string whole = read_text(gguf_golden("qwen2") / "model.gguf");
  const ScratchFolder folder;
  const ModelConfig config =
      read_model_config(folder.write("model.gguf", with_key(whole, "qwen2.rope.scaling.factor", 4.0f)));
  EXPECT_EQ(config.max_position, 4 * read_model_config(gguf_golden("qwen2") / "model.gguf").max_position);
  // Beside a tensor of factors.
  const std::string llama = read_text(gguf_golden("llama") / "model.gguf");
  const auto file = folder.write("llama.gguf", with_key(llama, "llama.rope.scaling.factor", 4.0f));
  expect_error([&] { read_model_config(file); }, {"llama.rope.scaling.", "tensor of factors"});
}

TEST(GgufFiles, DoNotScaleWhereTheTypeIsNone) {
  const std::string whole = read_text(gguf_golden("qwen2") / "model.gguf");
  const std::string scaled = with_key(whole, "qwen2.rope.scale_linear", 4.0f);
  const int64_t context = read_model_config(gguf_golden("qwen2") / "model.gguf").max_position;
  const ScratchFolder folder;
  EXPECT_EQ(read_model_config(folder.write("linear.gguf", scaled)).max_position, 4 * context);
  const std::string none = with_key(scaled, "qwen2.rope.scaling.type", std::string("none"));
  EXPECT_EQ(read_model_config(folder.write("none.gguf", none)).max_position, context);
}

TEST(GgufFiles, InAFolderOfNoOtherWeightsAreNamed) {
  const ScratchFolder folder;
  folder.write("config.json", "{}");
  folder.write("m.gguf", "GGUF");
  expect_error([&] { Checkpoint::open(folder.path()); }, {"GGUF file 'm.gguf'", "--model", "m.gguf"});
}

TEST(GgufFiles, WithAFaultAreRefused) {
  const std::string whole = read_text(gguf_golden("llama/model.gguf"));
  const std::string hidden = "llama.embedding_length", q = "blk.0.attn_q.weight";
  const GgufFault faults[] = {
      {[](std::string& b) { b[0] = 'X'; }, {"does not begin with GGUF"}},
      {[](std::string& b) { put(b, 4, uint32_t{9}); }, {"version is 9"}},
      {[](std::string& b) { b.resize(30); }, {"header ends inside"}},
      {[](std::string& b) { b.resize(b.size() - 100); }, {"tensor", "the file holds"}},
      {[](std::string& b) { put(b, 8, uint64_t{1} << 60); }, {"model.gguf"}},
      {[](std::string& b) { put(b, 16, uint64_t{1} << 60); }, {"model.gguf"}},
      {[&](std::string& b) { put(b, value_at(b, hidden) - 4, uint32_t{99}); }, {hidden, "unknown type 99"}},
      {[&](std::string& b) { put(b, value_at(b, hidden) - 4, uint32_t{6}); }, {hidden, "not an integer"}},
      {[&](std::string& b) { b[b.find(hidden)] = 'x'; }, {hidden, "missing"}},
      {[&](std::string& b) { put(b, value_at(b, hidden), uint32_t{0}); }, {"hidden_size is 0"}},
      {[&](std::string& b) { put(b, value_at(b, "llama.attention.head_count"), uint32_t{0}); }, {"head_count", "is 0"}},
      {[&](std::string& b) { put(b, value_at(b, "llama.attention.value_length"), uint32_t{16}); },
       {"keys and values have heads of different length"}},
      {[&](std::string& b) { b[value_at(b, "general.architecture") + 8] = 'x'; }, {"'xlama'", "qwen3"}},
      {[&](std::string& b) { put(b, value_at(b, "tokenizer.ggml.tokens") + 4, uint64_t{1} << 62); },
       {"tokenizer.ggml.tokens", "claims"}},
      {[&](std::string& b) { put(b, tensor_at(b, q), uint32_t{5}); }, {q, "5 dimensions"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 4, uint64_t{255}); }, {q, "rows of 255 elements"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 12, uint64_t{63}); }, {q, "expected shape [64, 256], found [63"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 12, uint64_t{1} << 62); }, {q}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 12, int64_t{-1}); }, {q, "beyond 2^63 - 1"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 20, uint32_t{1000}); }, {q, "unknown type 1000"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 20, uint32_t{19}); }, {q, "IQ1_S", "not supported"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 24, uint64_t{7}); }, {q, "begins at 7"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 24, UINT64_MAX - 31); }, {q, "the file holds"}},
      {[&](std::string& b) { put(b, tensor_at(b, q) + 24, uint64_t{0}); }, {"begins inside"}},
      {[&](std::string& b) { b[b.find(q) + 4] = '7'; }, {q, "missing"}},
      {[&](std::string& b) { put(b, tensor_at(b, "rope_freqs.weight") + 12, uint32_t{26}); }, {"rope_freqs.weight"}},
  };
  for (const GgufFault& fault : faults) {
    const ScratchFolder folder;
    std::string bytes = whole;
    fault.plant(bytes);
    const std::filesystem::path file = folder.write("model.gguf", bytes);
    SCOPED_TRACE(&fault - faults);
    const std::string message = error_of([&] { read_all(file); });
    EXPECT_NE(message, "") << "no Error was thrown";
    for (const std::string& word : fault.words) expect_words(message, {word});
  }
}

}  // namespace
}  // namespace nodewright
