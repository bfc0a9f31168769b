// Weights on the device, read back from the CPU driver and compared with what the files hold.
#include "models/weights/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "runtime/device_selection.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

using test::safetensors_of;
using test::TestTensor;

// No size is a multiple of 8, no two are equal, and heads * head_dim is not hidden.
ModelConfig odd_config() {
  ModelConfig c;
  c.names = llama_names();
  c.hidden = 20;
  c.layers = 2;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.intermediate = 22;
  c.vocab = 37;
  return c;
}

uint64_t element_bytes(const std::string& dtype) { return dtype == "F32" ? 4 : 2; }

// ---- The reference: what each stored element means, by another way than the library's ---------------------------

double value_of(const std::string& dtype, const char* at) {
  if (dtype == "F32") {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (dtype == "BF16") return std::bit_cast<float>(uint32_t{bits} << 16);
  const double sign = bits >> 15 ? -1 : 1;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction ? std::nan("") : sign * INFINITY;
  return exponent ? sign * std::ldexp(1024 + fraction, exponent - 25) : sign * std::ldexp(fraction, -24);
}

// The nearest bf16, the even one of two at the same distance. Past the largest it is infinity, at its own distance as
// if the exponent had no end.
uint16_t nearest_bf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | 0x7f80;
  const auto finite = [](uint32_t bits) { return bits == 0x7f80 ? 0x1p128 : double{std::bit_cast<float>(bits << 16)}; };
  uint32_t below = 0;
  for (uint32_t bit = 1u << 14; bit; bit >>= 1)
    if ((below | bit) < 0x7f80 && finite(below | bit) <= magnitude) below |= bit;
  const double down = magnitude - finite(below), up = finite(below + 1) - magnitude;
  return static_cast<uint16_t>(sign | (up < down || (up == down && below % 2) ? below + 1 : below));
}

bool same_bf16(uint16_t found, uint16_t expected) {
  const auto is_nan = [](uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
  return is_nan(expected) ? is_nan(found) : found == expected;
}

// ---- A checkpoint of random bits ---------------------------------------------------------------------------------

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<TensorShape> llama_tensors(const ModelConfig& c) {
  std::vector<TensorShape> all = {{"model.embed_tokens.weight", {c.vocab, c.hidden}}};
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    all.push_back({layer + "input_layernorm.weight", {c.hidden}});
    all.push_back({layer + "self_attn.q_proj.weight", {c.query_width(), c.hidden}});
    all.push_back({layer + "self_attn.k_proj.weight", {c.kv_width(), c.hidden}});
    all.push_back({layer + "self_attn.v_proj.weight", {c.kv_width(), c.hidden}});
    all.push_back({layer + "self_attn.o_proj.weight", {c.hidden, c.query_width()}});
    all.push_back({layer + "post_attention_layernorm.weight", {c.hidden}});
    all.push_back({layer + "mlp.gate_proj.weight", {c.intermediate, c.hidden}});
    all.push_back({layer + "mlp.up_proj.weight", {c.intermediate, c.hidden}});
    all.push_back({layer + "mlp.down_proj.weight", {c.hidden, c.intermediate}});
  }
  all.push_back({"model.norm.weight", {c.hidden}});
  if (!c.tied) all.push_back({"lm_head.weight", {c.vocab, c.hidden}});
  return all;
}

std::vector<TestTensor> random_llama(const ModelConfig& config, const std::string& dtype) {
  std::mt19937_64 random(7);
  std::vector<TestTensor> tensors;
  for (const TensorShape& t : llama_tensors(config)) {
    uint64_t bytes = element_bytes(dtype);
    for (const int64_t dimension : t.shape) bytes *= static_cast<uint64_t>(dimension);
    std::vector<uint64_t> words(bytes / 8 + 1);
    for (uint64_t& word : words) word = random();
    tensors.push_back({t.name, dtype, t.shape, test::bytes_of(words).substr(0, bytes)});
  }
  return tensors;
}

// Row `row` of a tensor, rounded to bf16.
std::vector<uint16_t> reference_row(const TestTensor& tensor, int64_t row) {
  const int64_t cols = tensor.shape.back();
  const uint64_t bytes = element_bytes(tensor.dtype);
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < cols; ++i)
    values.push_back(
        nearest_bf16(value_of(tensor.dtype, tensor.data.data() + static_cast<uint64_t>(row * cols + i) * bytes)));
  return values;
}

// ---- A device with loaded weights --------------------------------------------------------------------------------

class WeightsOnCpuDriver : public ::testing::Test {
 protected:
  WeightsOnCpuDriver() : opened_(open_device("cpu:checked", Observe::yes)), stream_(*opened_.device, "test") {}

  DecoderWeights load(const std::filesystem::path& folder, const ModelConfig& config, const Progress& progress = {}) {
    return DecoderWeights::load(*opened_.device, stream_, Checkpoint::open(folder), config, progress);
  }

  DecoderWeights load_tensors(const std::vector<TestTensor>& tensors, const ModelConfig& config) {
    const ScratchFolder folder;
    folder.write("model.safetensors", safetensors_of(tensors));
    return load(folder.path(), config);
  }

  std::vector<uint16_t> read_back(uint64_t address, uint64_t bytes) {
    std::vector<uint16_t> values(bytes / 2);
    read_device(*opened_.device, std::as_writable_bytes(std::span(values)), address, "weights");
    return values;
  }

  // Rows of the matrix equal `rows`, and the padding is zero.
  void expect_rows(const WeightMatrix& matrix, const std::vector<std::vector<uint16_t>>& rows,
                   const std::string& name) {
    ASSERT_EQ(matrix.rows, static_cast<int64_t>(rows.size())) << name;
    ASSERT_EQ(matrix.data.count, static_cast<uint64_t>(matrix.rows * matrix.stride)) << name;
    EXPECT_EQ(matrix.stride, (matrix.cols + 7) / 8 * 8) << name;
    const std::vector<uint16_t> found = read_back(matrix.data.address(), matrix.data.bytes());
    size_t wrong = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      ASSERT_EQ(matrix.cols, static_cast<int64_t>(rows[r].size())) << name;
      for (size_t c = 0; c < static_cast<size_t>(matrix.stride); ++c) {
        const uint16_t expected = c < rows[r].size() ? rows[r][c] : 0;
        const uint16_t value = found[r * static_cast<size_t>(matrix.stride) + c];
        if (!same_bf16(value, expected) && wrong++ < 3)
          ADD_FAILURE() << name << " row " << r << " column " << c << " is " << value << ", expected " << expected;
      }
    }
    EXPECT_EQ(wrong, 0u) << name;
  }

  void expect_vector(const Weight<bf16>& vector, const TestTensor& tensor) {
    const std::vector<uint16_t> found = read_back(vector.address(), vector.bytes()),
                                expected = reference_row(tensor, 0);
    ASSERT_EQ(found.size(), expected.size()) << tensor.name;
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bf16(found[i], expected[i])) << tensor.name << " " << i;
  }

  // Every tensor of `tensors` is where the layout of LayerWeights says.
  void expect_loaded(const DecoderWeights& weights, const std::vector<TestTensor>& tensors, const ModelConfig& c) {
    std::map<std::string, const TestTensor*> by_name;
    for (const TestTensor& t : tensors) by_name[t.name] = &t;
    const auto append = [&](std::vector<std::vector<uint16_t>>& rows, const std::string& name) {
      const TestTensor& tensor = *by_name.at(name);
      for (int64_t row = 0; row < tensor.shape[0]; ++row) rows.push_back(reference_row(tensor, row));
    };
    const auto expect_stack = [&](const WeightMatrix& matrix, std::initializer_list<std::string> names) {
      std::vector<std::vector<uint16_t>> rows;
      for (const std::string& name : names) append(rows, name);
      expect_rows(matrix, rows, *names.begin());
    };

    expect_stack(weights.embedding(), {"model.embed_tokens.weight"});
    expect_stack(weights.head(), {c.tied ? "model.embed_tokens.weight" : "lm_head.weight"});
    expect_vector(weights.final_norm().gain, *by_name.at("model.norm.weight"));
    ASSERT_EQ(weights.layers().size(), static_cast<size_t>(c.layers));
    for (size_t l = 0; l < weights.layers().size(); ++l) {
      const LayerWeights& layer = weights.layers()[l];
      const std::string prefix = "model.layers." + std::to_string(l) + ".";
      const auto name = [&](const char* what) { return prefix + what + ".weight"; };
      expect_vector(layer.attention_norm.gain, *by_name.at(name("input_layernorm")));
      expect_stack(layer.qkv, {name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj")});
      expect_stack(layer.out, {name("self_attn.o_proj")});
      expect_vector(layer.feed_forward_norm.gain, *by_name.at(name("post_attention_layernorm")));
      expect_stack(layer.down, {name("mlp.down_proj")});
      std::vector<std::vector<uint16_t>> gate, up, both;
      append(gate, name("mlp.gate_proj"));
      append(up, name("mlp.up_proj"));
      for (size_t i = 0; i < gate.size(); ++i) both.insert(both.end(), {gate[i], up[i]});
      expect_rows(layer.gate_up, both, name("mlp.gate_proj"));
    }
  }

  uint64_t live_handles() const { return opened_.interposer->live().size(); }

  OpenedDevice opened_;
  Stream stream_;
};

TEST_F(WeightsOnCpuDriver, AreInterleavedPaddedAndRoundedFromEveryDtype) {
  const ModelConfig config = odd_config();
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    const std::vector<TestTensor> tensors = random_llama(config, dtype);
    const DecoderWeights weights = load_tensors(tensors, config);
    expect_loaded(weights, tensors, config);
  }
}

TEST_F(WeightsOnCpuDriver, NeedNoPaddingWhenWidthsAreMultiplesOfEight) {
  ModelConfig config = odd_config();
  config.hidden = 24;
  config.head_dim = 8;
  config.intermediate = 40;
  const std::vector<TestTensor> tensors = random_llama(config, "BF16");
  expect_loaded(load_tensors(tensors, config), tensors, config);
}

TEST_F(WeightsOnCpuDriver, RoundEveryHalfAndEveryTieOfFloatExactly) {
  ModelConfig config = odd_config();
  config.hidden = 16;
  config.vocab = 4096;
  config.tied = true;
  std::vector<TestTensor> tensors = random_llama(config, "F16");
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  tensors[0].data = test::bytes_of(halves);
  expect_loaded(load_tensors(tensors, config), tensors, config);

  // Each upper half with lower halves around the tie: below, at and above it; every exponent, infinities and NaN.
  tensors = random_llama(config, "F32");
  std::vector<uint32_t> floats(65536);
  for (size_t i = 0; i < floats.size(); ++i) {
    constexpr uint32_t kLower[] = {0x7fff, 0x8000, 0x8001, 0xffff};
    floats[i] = static_cast<uint32_t>(i * 32771) << 16 | kLower[i % 4];
  }
  tensors[0].data = test::bytes_of(floats);
  expect_loaded(load_tensors(tensors, config), tensors, config);
}

TEST_F(WeightsOnCpuDriver, SpreadOverSeveralStagingChunksArriveWhole) {
  ModelConfig config = odd_config();
  config.layers = 1;
  config.hidden = 500;           // stride 504
  config.vocab = 40'000;         // 40 MB
  config.intermediate = 20'000;  // gate_up 40 MB
  config.tied = true;
  std::vector<TestTensor> tensors = random_llama(config, "BF16");
  const DecoderWeights weights = load_tensors(tensors, config);
  EXPECT_GT(weights.bytes(), 80'000'000u);
  std::map<std::string, const TestTensor*> by_name;
  for (const TestTensor& t : tensors) by_name[t.name] = &t;

  // Compared as bytes, row by row: the reference that goes through double would take minutes here.
  const auto expect_row = [&](const std::vector<uint16_t>& found, const WeightMatrix& m, int64_t row,
                              const std::string& name, int64_t tensor_row) {
    const auto row_bytes = static_cast<size_t>(m.cols) * 2;
    const uint16_t* at = found.data() + row * m.stride;
    const bool same =
        std::memcmp(at, by_name.at(name)->data.data() + static_cast<size_t>(tensor_row) * row_bytes, row_bytes) == 0;
    const bool zero = std::all_of(at + m.cols, at + m.stride, [](uint16_t v) { return v == 0; });
    if (!same || !zero) ADD_FAILURE() << name << " row " << tensor_row << (same ? " is not padded" : " differs");
    return same && zero;
  };
  const auto embedding = read_back(weights.embedding().data.address(), weights.embedding().data.bytes());
  for (int64_t r = 0; r < config.vocab; ++r)
    if (!expect_row(embedding, weights.embedding(), r, "model.embed_tokens.weight", r)) break;
  const WeightMatrix& gate_up = weights.layers()[0].gate_up;
  const auto both = read_back(gate_up.data.address(), gate_up.data.bytes());
  for (int64_t r = 0; r < gate_up.rows; ++r) {
    const std::string name = r % 2 ? "model.layers.0.mlp.up_proj.weight" : "model.layers.0.mlp.gate_proj.weight";
    if (!expect_row(both, gate_up, r, name, r / 2)) break;
  }
  const WeightMatrix& down = weights.layers()[0].down;
  const auto rows = read_back(down.data.address(), down.data.bytes());
  for (int64_t r = 0; r < down.rows; ++r)
    if (!expect_row(rows, down, r, "model.layers.0.mlp.down_proj.weight", r)) break;
}

// The header's length puts the data at any byte; the format promises no alignment.
TEST_F(WeightsOnCpuDriver, ArriveFromEveryAlignmentInTheFile) {
  const ModelConfig config = odd_config();
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    const std::vector<TestTensor> tensors = random_llama(config, dtype);
    const std::string whole = safetensors_of(tensors);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data(), sizeof(header_bytes));
    const std::string header = whole.substr(8, header_bytes), data = whole.substr(8 + header_bytes);
    for (size_t spaces = 0; spaces < 4; ++spaces) {
      const ScratchFolder folder;
      folder.write("model.safetensors", test::safetensors_bytes(header + std::string(spaces, ' '), data));
      expect_loaded(load(folder.path(), config), tensors, config);
    }
  }
}

TEST_F(WeightsOnCpuDriver, OfShardsEqualThoseOfOneFile) {
  const ModelConfig config = odd_config();
  const std::vector<TestTensor> tensors = random_llama(config, "F32");
  const DecoderWeights whole = load_tensors(tensors, config);

  const ScratchFolder folder;
  std::vector<std::vector<TestTensor>> shards(3);
  nlohmann::json weight_map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    shards[i % 3].push_back(tensors[tensors.size() - 1 - i]);
    weight_map[shards[i % 3].back().name] = std::to_string(i % 3) + ".safetensors";
  }
  for (size_t i = 0; i < 3; ++i) folder.write(std::to_string(i) + ".safetensors", safetensors_of(shards[i]));
  folder.write("model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
  const DecoderWeights sharded = load(folder.path(), config);

  ASSERT_EQ(sharded.ranges().size(), whole.ranges().size());
  for (size_t i = 0; i < whole.ranges().size(); ++i) {
    const NamedRange &a = whole.ranges()[i], &b = sharded.ranges()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(read_back(a.address, a.bytes), read_back(b.address, b.bytes)) << a.name;
  }
}

TEST_F(WeightsOnCpuDriver, LieInNamedRangesThatAreAlignedAndApart) {
  const ModelConfig config = odd_config();
  const DecoderWeights weights = load_tensors(random_llama(config, "BF16"), config);
  std::vector<std::string> names;
  uint64_t end = 0;
  for (const NamedRange& range : weights.ranges()) {
    names.push_back(range.name);
    EXPECT_EQ(range.kind, "weight");
    EXPECT_EQ(range.address % 256, 0u) << range.name;
    EXPECT_GE(range.address, end) << range.name;
    end = range.address + range.bytes;
  }
  const std::vector<std::string> expected = {
      "embedding", "l0.attention_norm", "l0.qkv", "l0.out", "l0.feed_forward_norm", "l0.gate_up",
      "l0.down",   "l1.attention_norm", "l1.qkv", "l1.out", "l1.feed_forward_norm", "l1.gate_up",
      "l1.down",   "final_norm",        "head"};
  EXPECT_EQ(names, expected);
  EXPECT_LE(end - weights.ranges()[0].address, weights.bytes());
  EXPECT_EQ(weights.layers()[1].qkv.data.address(), weights.ranges()[8].address);
}

TEST_F(WeightsOnCpuDriver, CountTheBytesThatOneTokenReads) {
  ModelConfig config = odd_config();
  // Widths 20 -> 24, 36 -> 40, 22 -> 24 elements of 2 bytes.
  const uint64_t layer = 2 * (20 + (36 + 2 * 12) * 24 + 20 * 40 + 20 + 2 * 22 * 24 + 20 * 24);
  const uint64_t table = 2 * 37 * 24, row = 2 * 24, norm = 2 * 20;
  EXPECT_EQ(load_tensors(random_llama(config, "BF16"), config).bytes_per_token(), 2 * layer + norm + table + row);
  config.tied = true;
  EXPECT_EQ(load_tensors(random_llama(config, "BF16"), config).bytes_per_token(), 2 * layer + norm + table + row);
}

TEST_F(WeightsOnCpuDriver, ShareTheTableOfATiedHeadAndIgnoreOneInTheFile) {
  ModelConfig config = odd_config();
  const std::vector<TestTensor> untied = random_llama(config, "BF16");
  config.tied = true;
  for (const auto& tensors : {untied, random_llama(config, "BF16")}) {
    const DecoderWeights weights = load_tensors(tensors, config);
    EXPECT_EQ(weights.head().data, weights.embedding().data);
    EXPECT_EQ(weights.ranges().back().name, "final_norm");
    expect_loaded(weights, tensors, config);
  }
}

TEST_F(WeightsOnCpuDriver, ReportTheirProgressUpToTheEnd) {
  const ModelConfig config = odd_config();
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of(random_llama(config, "BF16")));
  std::vector<uint64_t> done;
  uint64_t total = 0;
  const DecoderWeights weights = load(folder.path(), config, {[&](uint64_t d, uint64_t t) {
                                        done.push_back(d);
                                        total = t;
                                      }});
  ASSERT_FALSE(done.empty());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), total);
  EXPECT_EQ(total, weights.bytes());
}

TEST_F(WeightsOnCpuDriver, RefuseACheckpointOfAnotherShape) {
  const ModelConfig config = odd_config();
  const std::vector<TestTensor> tensors = random_llama(config, "BF16");
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<TestTensor> wrong = tensors;
    wrong.erase(wrong.begin() + static_cast<std::ptrdiff_t>(i));
    expect_error([&] { load_tensors(wrong, config); },
                 {"load tensor '" + tensors[i].name + "'", "it is missing; expected shape ["});
    wrong = tensors;
    wrong[i].shape.push_back(1);
    expect_error([&] { load_tensors(wrong, config); }, {tensors[i].name, "expected shape [", ", 1]"});
  }
  ModelConfig larger = config;
  larger.hidden = 21;
  expect_error([&] { load_tensors(tensors, larger); },
               {"'model.embed_tokens.weight'", "expected shape [37, 21], found [37, 20]"});
}

TEST_F(WeightsOnCpuDriver, RefuseTensorsThatNothingReads) {
  const ModelConfig config = odd_config();
  std::vector<TestTensor> tensors = random_llama(config, "BF16");
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {3}, std::string(12, '\0')});
  for (const char* name :
       {"rotary_emb.inv_freq", "model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached", "model.layers.0.self_attn.rotary_emb.sin_cached",
        "model.layers.0.self_attn.rotary_pos_emb.inv_freq", "rope.freqs", "freqs_cis", "model.embeddings.position_ids",
        "model.causal_mask", "model.layers.0.self_attn.masked_bias", "model.layers.0.attn.bias"})
    tensors.push_back({name, "F32", {3}, std::string(12, '\0')});
  EXPECT_GT(load_tensors(tensors, config).bytes(), 0u);
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "BF16", {36}, std::string(72, '\0')});
  expect_error([&] { load_tensors(tensors, config); },
               {"1 tensors belong to no part", "'model.layers.0.self_attn.q_proj.bias' with shape [36]"});
  ModelConfig shorter = config;
  shorter.layers = 1;
  tensors.pop_back();
  expect_error([&] { load_tensors(tensors, shorter); }, {"9 tensors belong to no part", "'model.layers.1."});
}

TEST_F(WeightsOnCpuDriver, RefuseDtypesThatAreOnlyListed) {
  const ModelConfig config = odd_config();
  std::vector<TestTensor> tensors = random_llama(config, "BF16");
  tensors[2].dtype = "F8_E4M3";
  tensors[2].data.resize(tensors[2].data.size() / 2);
  expect_error([&] { load_tensors(tensors, config); }, {tensors[2].name, "its dtype is F8_E4M3"});
}

TEST_F(WeightsOnCpuDriver, TurnAFileThatShrinksDuringTheLoadIntoAnError) {
  const ModelConfig config = odd_config();
  const ScratchFolder folder;
  const auto path = folder.write("model.safetensors", safetensors_of(random_llama(config, "BF16")));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const uint64_t before = live_handles();
  expect_error([&] { DecoderWeights::load(*opened_.device, stream_, checkpoint, config); },
               {"model.safetensors", "the file ends after"});
  EXPECT_EQ(live_handles(), before) << opened_.interposer->describe_live();
}

TEST_F(WeightsOnCpuDriver, LeakNothingWhicheverDriverCallFails) {
  const ModelConfig config = odd_config();
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of(random_llama(config, "BF16")));
  Interposer& interposer = *opened_.interposer;
  const uint64_t handles = live_handles(), first = interposer.calls();
  load(folder.path(), config);
  const uint64_t calls = interposer.calls() - first;
  EXPECT_GT(calls, 8u);
  for (const bool onward : {false, true}) {
    size_t errors = 0;
    for (uint64_t n = 0; n < calls; ++n) {
      onward ? interposer.fail_from(n, CUDA_ERROR_UNKNOWN) : interposer.fail_call(n, CUDA_ERROR_UNKNOWN);
      try {
        load(folder.path(), config);
      } catch (const Error& error) {
        ++errors;
        EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_UNKNOWN"), std::string::npos) << error.what();
      }
      interposer.fail_none();
      EXPECT_EQ(live_handles(), handles) << "call " << n << ": " << interposer.describe_live();
    }
    EXPECT_GE(errors, calls - 3);  // an event, a chunk and the buffer are released at the end, which never throws
  }
  EXPECT_GT(load(folder.path(), config).bytes(), 0u);
}

// More chunks than are pinned, so that threads read, copies travel and chunks are handed on when the failure comes.
TEST_F(WeightsOnCpuDriver, LeakNothingWhenAnUploadOfManyChunksEndsEarly) {
  ModelConfig config = odd_config();
  config.layers = 1;
  config.hidden = 500;
  config.vocab = 60'000;  // 60 MB
  config.tied = true;
  const ScratchFolder folder;
  const auto path = folder.write("model.safetensors", safetensors_of(random_llama(config, "BF16")));
  Interposer& interposer = *opened_.interposer;
  const uint64_t handles = live_handles(), first = interposer.calls();
  load(folder.path(), config);
  const uint64_t calls = interposer.calls() - first;
  EXPECT_GT(calls, 30u);
  for (uint64_t n = 3; n < calls; n += 7) {
    interposer.fail_call(n, CUDA_ERROR_UNKNOWN);
    try {
      load(folder.path(), config);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_UNKNOWN"), std::string::npos) << error.what();
    }
    interposer.fail_none();
    EXPECT_EQ(live_handles(), handles) << "call " << n << ": " << interposer.describe_live();
  }
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  const uint64_t whole = std::filesystem::file_size(path);
  for (const uint64_t cut : {uint64_t{1}, whole / 2, whole - 5000}) {
    std::filesystem::resize_file(path, whole - cut);
    expect_error([&] { DecoderWeights::load(*opened_.device, stream_, checkpoint, config); },
                 {"model.safetensors", "the file ends after", "keep the checkpoint unchanged"});
    EXPECT_EQ(live_handles(), handles) << interposer.describe_live();
  }
}

TEST_F(WeightsOnCpuDriver, ComeFromTheFileThatWasOpenedThoughAnotherTakesItsName) {
  const ModelConfig config = odd_config();
  const std::vector<TestTensor> tensors = random_llama(config, "BF16");
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of(tensors));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  folder.write("other", "nothing");
  std::filesystem::rename(folder.path() / "other", folder.path() / "model.safetensors");
  expect_loaded(DecoderWeights::load(*opened_.device, stream_, checkpoint, config), tensors, config);
}

TEST(WeightsOnASmallDevice, StateNeededAndFreeBytesWhenMemoryIsShort) {
  const OpenedDevice small = open_device("cpu:memory_mb=1");
  Stream stream(*small.device, "small");
  ModelConfig config = odd_config();
  config.vocab = 100'000;
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of(random_llama(config, "BF16")));
  expect_error([&] { DecoderWeights::load(*small.device, stream, Checkpoint::open(folder.path()), config); },
               {"allocate device memory 'weights'", "needs 96", "are free"});
}

// ---- The other families --------------------------------------------------------------------------------------------

std::vector<TestTensor> random_tensors(const std::vector<TensorShape>& shapes, const std::string& dtype) {
  std::mt19937_64 random(8);
  std::vector<TestTensor> tensors;
  for (const TensorShape& t : shapes) {
    uint64_t bytes = element_bytes(dtype);
    for (const int64_t dimension : t.shape) bytes *= static_cast<uint64_t>(dimension);
    std::vector<uint64_t> words(bytes / 8 + 1);
    for (uint64_t& word : words) word = random();
    tensors.push_back({t.name, dtype, t.shape, test::bytes_of(words).substr(0, bytes)});
  }
  return tensors;
}

const TestTensor& named(const std::vector<TestTensor>& tensors, const std::string& name) {
  for (const TestTensor& t : tensors)
    if (t.name == name) return t;
  throw std::runtime_error(name);
}

ModelConfig odd_gpt2() {
  ModelConfig c = odd_config();
  c.names = gpt2_names();
  c.hidden = 30, c.heads = c.kv_heads = 5, c.max_position = 11;  // query_width is hidden
  c.norm = Norm::layer;
  c.biases = {true, true, true, true};
  c.learned_positions = c.tied = true;
  c.gated = false;
  return c;
}

std::vector<TensorShape> gpt2_tensors(const ModelConfig& c, const std::string& prefix) {
  std::vector<TensorShape> all = {{prefix + "wte.weight", {c.vocab, c.hidden}},
                                  {prefix + "wpe.weight", {c.max_position, c.hidden}}};
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string layer = prefix + "h." + std::to_string(l) + ".";
    for (const char* norm : {"ln_1", "ln_2"})
      for (const char* part : {".weight", ".bias"}) all.push_back({layer + norm + part, {c.hidden}});
    const std::pair<const char*, std::pair<int64_t, int64_t>> products[] = {{"attn.c_attn", {c.hidden, 3 * c.hidden}},
                                                                            {"attn.c_proj", {c.hidden, c.hidden}},
                                                                            {"mlp.c_fc", {c.hidden, c.intermediate}},
                                                                            {"mlp.c_proj", {c.intermediate, c.hidden}}};
    for (const auto& [name, size] : products) {
      all.push_back({layer + name + ".weight", {size.first, size.second}});
      all.push_back({layer + name + ".bias", {size.second}});
    }
  }
  for (const char* part : {".weight", ".bias"}) all.push_back({prefix + "ln_f" + part, {c.hidden}});
  return all;
}

// The columns of a tensor stored [in, out], as rows.
std::vector<std::vector<uint16_t>> columns_of(const TestTensor& tensor) {
  std::vector<std::vector<uint16_t>> rows(static_cast<size_t>(tensor.shape[1]));
  for (int64_t in = 0; in < tensor.shape[0]; ++in) {
    const std::vector<uint16_t> row = reference_row(tensor, in);
    for (size_t out = 0; out < row.size(); ++out) rows[out].push_back(row[out]);
  }
  return rows;
}

TEST_F(WeightsOnCpuDriver, OfGpt2AreTransposedWithTheirBiasesFromEveryDtypeWithAndWithoutThePrefix) {
  const ModelConfig config = odd_gpt2();
  for (const std::string prefix : {"transformer.", ""})
    for (const char* dtype : {"BF16", "F16", "F32"}) {
      std::vector<TestTensor> tensors = random_tensors(gpt2_tensors(config, prefix), dtype);
      // What old files store beside the weights: the causal mask.
      tensors.push_back({prefix + "h.0.attn.bias", "F32", {1, 1, 11, 11}, std::string(484, '\0')});
      tensors.push_back({prefix + "h.0.attn.masked_bias", "F32", {}, std::string(4, '\0')});
      const DecoderWeights weights = load_tensors(tensors, config);
      std::vector<std::vector<uint16_t>> positions;
      for (int64_t p = 0; p < 11; ++p) positions.push_back(reference_row(named(tensors, prefix + "wpe.weight"), p));
      expect_rows(weights.positions(), positions, "wpe");
      expect_vector(weights.final_norm().gain, named(tensors, prefix + "ln_f.weight"));
      expect_vector(weights.final_norm().shift, named(tensors, prefix + "ln_f.bias"));
      for (size_t l = 0; l < weights.layers().size(); ++l) {
        const LayerWeights& layer = weights.layers()[l];
        const auto tensor = [&](const char* name) -> const TestTensor& {
          return named(tensors, prefix + "h." + std::to_string(l) + "." + name);
        };
        expect_vector(layer.attention_norm.gain, tensor("ln_1.weight"));
        expect_vector(layer.attention_norm.shift, tensor("ln_1.bias"));
        expect_vector(layer.feed_forward_norm.gain, tensor("ln_2.weight"));
        expect_vector(layer.feed_forward_norm.shift, tensor("ln_2.bias"));
        expect_rows(layer.qkv, columns_of(tensor("attn.c_attn.weight")), "c_attn");
        expect_rows(layer.out, columns_of(tensor("attn.c_proj.weight")), "attn.c_proj");
        expect_rows(layer.gate_up, columns_of(tensor("mlp.c_fc.weight")), "c_fc");
        expect_rows(layer.down, columns_of(tensor("mlp.c_proj.weight")), "mlp.c_proj");
        expect_vector(layer.qkv.bias, tensor("attn.c_attn.bias"));
        expect_vector(layer.out.bias, tensor("attn.c_proj.bias"));
        expect_vector(layer.gate_up.bias, tensor("mlp.c_fc.bias"));
        expect_vector(layer.down.bias, tensor("mlp.c_proj.bias"));
        EXPECT_EQ(layer.q_norm.count + layer.k_norm.count + layer.attention_post_norm.count, 0u);
      }
    }
}

// One matrix is read by several threads, each a run of columns.
TEST_F(WeightsOnCpuDriver, OfAWideTransposedMatrixArriveWhole) {
  ModelConfig config = odd_gpt2();
  config.layers = 1;
  config.hidden = 500, config.head_dim = 100;
  config.intermediate = 9000;
  const std::vector<TestTensor> tensors = random_tensors(gpt2_tensors(config, ""), "BF16");
  const DecoderWeights weights = load_tensors(tensors, config);
  const WeightMatrix& up = weights.layers()[0].gate_up;
  const std::vector<uint16_t> found = read_back(up.data.address(), up.data.bytes());
  std::vector<uint16_t> stored(static_cast<size_t>(500 * 9000));
  std::memcpy(stored.data(), named(tensors, "h.0.mlp.c_fc.weight").data.data(), stored.size() * 2);
  size_t wrong = 0;
  for (size_t out = 0; out < 9000; ++out)
    for (size_t in = 0; in < 504; ++in)
      wrong += found[out * 504 + in] != (in < 500 ? stored[in * 9000 + out] : 0) ? 1 : 0;
  EXPECT_EQ(wrong, 0u);
}

TEST_F(WeightsOnCpuDriver, OfGemma3AndQwen3AreFoundByTheirNames) {
  for (const bool post_norms : {false, true})
    for (const std::string prefix : {"model.", ""}) {
      ModelConfig config = odd_config();
      config.head_norm = HeadNorm::head;
      config.post_norms = post_norms;
      config.names.q_norm = "self_attn.q_norm";
      config.names.k_norm = "self_attn.k_norm";
      if (post_norms) {
        config.names.attention_post_norm = "post_attention_layernorm";
        config.names.feed_forward_norm = "pre_feedforward_layernorm";
        config.names.feed_forward_post_norm = "post_feedforward_layernorm";
      }
      std::vector<TensorShape> shapes;
      for (TensorShape t : llama_tensors(config)) {
        if (t.name.starts_with("model.")) t.name = prefix + t.name.substr(6);
        shapes.push_back(std::move(t));
      }
      for (int64_t l = 0; l < config.layers; ++l) {
        const std::string layer = prefix + "layers." + std::to_string(l) + ".";
        for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
          shapes.push_back({layer + name, {config.head_dim}});
        if (post_norms)
          for (const char* name : {"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"})
            shapes.push_back({layer + name, {config.hidden}});
      }
      const std::vector<TestTensor> tensors = random_tensors(shapes, "BF16");
      const DecoderWeights weights = load_tensors(tensors, config);
      for (size_t l = 0; l < weights.layers().size(); ++l) {
        const LayerWeights& layer = weights.layers()[l];
        const auto expect = [&](const Weight<bf16>& vector, const char* name) {
          expect_vector(vector, named(tensors, prefix + "layers." + std::to_string(l) + "." + name + ".weight"));
        };
        expect(layer.attention_norm.gain, "input_layernorm");
        expect(layer.q_norm, "self_attn.q_norm");
        expect(layer.k_norm, "self_attn.k_norm");
        if (!post_norms) {
          expect(layer.feed_forward_norm.gain, "post_attention_layernorm");
          EXPECT_EQ(layer.attention_post_norm.count, 0u);
          continue;
        }
        expect(layer.attention_post_norm, "post_attention_layernorm");
        expect(layer.feed_forward_norm.gain, "pre_feedforward_layernorm");
        expect(layer.feed_forward_post_norm, "post_feedforward_layernorm");
      }
    }
}

TEST_F(WeightsOnCpuDriver, OfWhichAPartIsMissingAreRefusedByName) {
  const ModelConfig config = odd_gpt2();
  const std::vector<TestTensor> tensors = random_tensors(gpt2_tensors(config, "transformer."), "BF16");
  for (size_t i = 1; i < tensors.size(); ++i) {
    std::vector<TestTensor> wrong = tensors;
    wrong.erase(wrong.begin() + static_cast<std::ptrdiff_t>(i));
    expect_error([&] { load_tensors(wrong, config); }, {"load tensor '" + tensors[i].name + "'", "it is missing"});
  }
  std::vector<TestTensor> upright = tensors;  // c_attn stored [out, in]
  for (TestTensor& t : upright)
    if (t.name.ends_with("c_attn.weight")) std::swap(t.shape[0], t.shape[1]);
  expect_error([&] { load_tensors(upright, config); }, {"c_attn", "expected shape [30, 90], found [90, 30]"});
}

TEST_F(WeightsOnCpuDriver, OfTheGoldenCheckpointsAgreeWithTheirConfigs) {
  const std::filesystem::path golden = test::source_dir() / "tests/golden";
  size_t checkpoints = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    if (std::filesystem::exists(entry.path() / "model.gguf")) continue;  // read without that config.json
    ++checkpoints;
    const ModelConfig config = read_model_config(entry.path());
    const DecoderWeights weights = load(entry.path(), config);
    EXPECT_EQ(weights.layers().size(), static_cast<size_t>(config.layers)) << entry.path();
    EXPECT_EQ(weights.head().rows, config.vocab) << entry.path();
    EXPECT_EQ(weights.head().data == weights.embedding().data, config.tied) << entry.path();
  }
  EXPECT_GE(checkpoints, 7u);
}

}  // namespace
}  // namespace nodewright
