// A golden checkpoint of tests/golden on a device, its reference logits, and bitwise comparison of logits: what
// the end-to-end tests of decoding share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/decoder_model.h"
#include "runtime/device_selection.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/stream.h"
#include "tests/engine/parity/decoder.h"
#include "tests/support/test_device.h"
#include "tests/support/test_places.h"

namespace nodewright::test {

using Logits = std::vector<float>;  // [vocab]
using Tokens = std::vector<int32_t>;

// By family and case.
inline const std::vector<std::string> kGoldenModels = {
    "llama/odd_sizes",  "llama/one_kv_head",      "llama/unaligned", "qwen3/normed_heads",
    "gemma3/window_16", "gpt2/learned_positions", "gpt2/nanogpt"};

// One of each family in which a small fault costs more than our error (tests/reference/make_goldens.py).
inline const std::vector<std::string> kExactingModels = {"llama/exacting", "qwen3/exacting", "gemma3/exacting",
                                                         "gpt2/exacting"};

// One of each other family (tests/reference/family_checkpoint.py).
inline const std::vector<std::string> kFamilyModels = {"cohere/parallel",
                                                       "cohere2/hybrid",
                                                       "exaone/names",
                                                       "exaone4/global",
                                                       "exaone4/hybrid",
                                                       "gemma/first",
                                                       "gemma2/caps",
                                                       "gpt_neox/parallel",
                                                       "gpt_neox/sequential",
                                                       "granite/multipliers",
                                                       "llama/biases",
                                                       "llama/dynamic",
                                                       "llama/yarn",
                                                       "mistral/window_16",
                                                       "mixtral/two_of_four",
                                                       "olmo2/wide_norms",
                                                       "olmoe/wide_norms",
                                                       "phi3/long",
                                                       "phi3/short",
                                                       "qwen2/biases",
                                                       "qwen3_moe/normed",
                                                       "qwen3_moe/dense_first",
                                                       "qwen3_moe/every_second",
                                                       "smollm3/unrotated",
                                                       "stablelm/parallel",
                                                       "stablelm/partial",
                                                       "starcoder2/window_16"};

inline std::filesystem::path golden_folder(const std::string& name) { return source_dir() / "tests/golden" / name; }

// As a part of a test's name.
inline std::string golden_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
}

// One prompt of cases.json with what transformers says: row 0 after the prompt, row i after the i-th forced token.
struct GoldenCase {
  Tokens prompt, continuation;
  std::vector<Logits> expected;
};

// A float32 matrix in C order. Reads exactly what numpy.save writes for one, format version 1.
inline std::vector<Logits> read_npy(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto refuse = [&](const char* why) { throw std::runtime_error(path.string() + ": " + why); };
  if (!bytes.starts_with(std::string_view("\x93NUMPY\x01\x00", 8)) || bytes.size() < 10) refuse("not .npy version 1");
  const size_t header_bytes =
      static_cast<unsigned char>(bytes[8]) + (static_cast<size_t>(static_cast<unsigned char>(bytes[9])) << 8);
  const std::string header = bytes.substr(10, header_bytes);
  if (header.find("'<f4'") == std::string::npos || header.find("'fortran_order': False") == std::string::npos)
    refuse("not float32 in C order");
  size_t rows = 0, columns = 0;
  const size_t shape = header.find("'shape': (");
  if (shape == std::string::npos || std::sscanf(header.c_str() + shape, "'shape': (%zu, %zu)", &rows, &columns) != 2)
    refuse("not a matrix");
  if (bytes.size() != 10 + header_bytes + rows * columns * sizeof(float)) refuse("not as long as its shape says");
  std::vector<Logits> matrix(rows, Logits(columns));
  for (size_t row = 0; row < rows; ++row)
    std::memcpy(matrix[row].data(), bytes.data() + 10 + header_bytes + row * columns * sizeof(float),
                columns * sizeof(float));
  return matrix;
}

inline std::vector<GoldenCase> golden_cases_of(const std::string& name) {
  std::ifstream file(golden_folder(name) / "cases.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<GoldenCase> cases;
  for (const nlohmann::json& one : json.at("cases"))
    cases.push_back({one.at("prompt").get<Tokens>(), one.at("continuation").get<Tokens>(),
                     read_npy(golden_folder(name) / one.at("logits").get<std::string>())});
  return cases;
}

// A golden model, loaded, with what a Decoder needs beside it.
struct LoadedModel {
  explicit LoadedModel(const std::string& golden, const std::string& spec = test_device(),
                       Observe observe = Observe::no, const LoadOptions& options = {})
      : opened(open_device(spec, observe)),
        device(*opened.device),
        stream(device, "decode"),
        kernels(device),
        model(DecoderModel::load(device, stream, golden_folder(golden), {}, options)) {}

  Decoder decoder(const DecoderOptions& options) { return Decoder(device, kernels, model, options); }
  size_t vocab() const { return static_cast<size_t>(model.config().vocab); }

  OpenedDevice opened;
  Device& device;
  Stream stream;
  KernelCache kernels;
  DecoderModel model;
};

// The options of most of these tests: few specialisations, so that few kernels are compiled.
inline DecoderOptions decoder_options(int64_t bucket, RunMode mode = RunMode::explicit_) {
  return {.bucket = bucket, .prefill_rows = 8, .max_context = 256, .sequences = 8, .mode = mode, .keep_logits = true};
}

inline Logits logits_of(const Decoder& decoder, const LoadedModel& loaded, int64_t row = 0) {
  Logits logits(loaded.vocab());
  decoder.read_logits(row, logits);
  return logits;
}

// Appends all but the last token of the prompt, then steps through that and the continuation: one row after each.
inline std::vector<Logits> forced_logits(Decoder& decoder, const LoadedModel& loaded, const Tokens& prompt,
                                         const Tokens& continuation) {
  const int32_t sequence = decoder.open();
  decoder.append(sequence, std::span(prompt).first(prompt.size() - 1));
  Tokens forced{prompt.back()};
  forced.insert(forced.end(), continuation.begin(), continuation.end());
  std::vector<Logits> rows;
  for (int32_t token : forced) {
    decoder.step({{.sequence = sequence, .token = token}});
    rows.push_back(logits_of(decoder, loaded));
  }
  decoder.close(sequence);
  return rows;
}

// `count` tokens that repeat from run to run and differ from salt to salt.
inline Tokens some_tokens(size_t count, size_t vocab, uint64_t salt) {
  Tokens tokens;
  uint64_t state = salt * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
    tokens.push_back(static_cast<int32_t>((state >> 33) % vocab));
  }
  return tokens;
}

inline testing::AssertionResult same_bits(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " logits against " << b.size();
  size_t differences = 0, first = 0;
  for (size_t i = a.size(); i-- > 0;)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) ++differences, first = i;
  if (differences == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << differences << " of " << a.size() << " logits differ, the first at " << first
                                     << ": " << a[first] << " against " << b[first];
}

inline testing::AssertionResult same_bits(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " rows against " << b.size();
  for (size_t row = 0; row < a.size(); ++row)
    if (const auto same = same_bits(a[row], b[row]); !same)
      return testing::AssertionFailure() << "row " << row << ": " << same.message();
  return testing::AssertionSuccess();
}

// The rms error of `ours` over the standard deviation of `reference`, both over every logit of every row: the measure
// of tests/reference/compare_logits.py.
inline double relative_error(const std::vector<Logits>& ours, const std::vector<Logits>& reference) {
  double sum = 0, squares = 0, errors = 0, count = 0;
  for (size_t row = 0; row < reference.size(); ++row)
    for (size_t i = 0; i < reference[row].size(); ++i) {
      const double expected = reference[row][i], error = static_cast<double>(ours.at(row).at(i)) - expected;
      sum += expected;
      squares += expected * expected;
      errors += error * error;
      ++count;
    }
  return std::sqrt(errors / count) / std::sqrt(squares / count - sum / count * (sum / count));
}

}  // namespace nodewright::test
