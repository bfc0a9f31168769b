// A small random Llama in a GGUF file, its matrices in blocks of any type, and the same numbers in bf16 in another one.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/gguf_file.h"
#include "models/weights/bf16_conversion.h"
#include "models/weights/formats/gguf_format.h"
#include "tests/base/gguf_writer.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/scratch_folder.h"

namespace nodewright::test {

class GgufCheckpoint {
 public:
  static constexpr int64_t kHidden = 256, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kIntermediate = 512, kVocab = 90,
                           kLayers = 4;

  // type_of(layer, name): the type of a layer's matrix, "attn_q" or another.
  explicit GgufCheckpoint(const std::function<std::string(int64_t layer, const std::string& name)>& type_of) {
    for (GgufWriter* file : {&quantized_, &bf16_}) add_keys(*file);
    matrix("token_embd", kVocab, kHidden, "BF16");
    matrix("output", kVocab, kHidden, "BF16");
    gains("output_norm");
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      const auto of_layer = [&](const std::string& name, int64_t rows, int64_t cols) {
        matrix(prefix + name, rows, cols, type_of(layer, name));
      };
      gains(prefix + "attn_norm");
      of_layer("attn_q", kHeads * kHeadDim, kHidden);
      of_layer("attn_k", kKvHeads * kHeadDim, kHidden);
      of_layer("attn_v", kKvHeads * kHeadDim, kHidden);
      of_layer("attn_output", kHidden, kHeads * kHeadDim);
      gains(prefix + "ffn_norm");
      of_layer("ffn_gate", kIntermediate, kHidden);
      of_layer("ffn_up", kIntermediate, kHidden);
      of_layer("ffn_down", kHidden, kIntermediate);
    }
    write_text(folder_.path() / "quantized.gguf", quantized_.bytes());
    write_text(folder_.path() / "bf16.gguf", bf16_.bytes());
  }

  std::string quantized() const { return (folder_.path() / "quantized.gguf").string(); }
  std::string in_bf16() const { return (folder_.path() / "bf16.gguf").string(); }

 private:
  static void add_keys(GgufWriter& file) {
    file.add("general.architecture", "llama");
    file.add("llama.context_length", uint32_t{256});
    file.add("llama.embedding_length", static_cast<uint32_t>(kHidden));
    file.add("llama.block_count", static_cast<uint32_t>(kLayers));
    file.add("llama.feed_forward_length", static_cast<uint32_t>(kIntermediate));
    file.add("llama.attention.head_count", static_cast<uint32_t>(kHeads));
    file.add("llama.attention.head_count_kv", static_cast<uint32_t>(kKvHeads));
    file.add("llama.attention.key_length", static_cast<uint32_t>(kHeadDim));
    file.add("llama.attention.value_length", static_cast<uint32_t>(kHeadDim));
    file.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    file.add("llama.rope.freq_base", 10000.0f);
    file.add("llama.rope.dimension_count", static_cast<uint32_t>(kHeadDim));
    std::vector<std::string> tokens = {"<|begin_of_text|>", "<|end_of_text|>", "a", "b", "ab"};
    std::vector<int32_t> types = {3, 3, 1, 1, 1};
    while (tokens.size() < kVocab) tokens.push_back("c" + std::to_string(tokens.size())), types.push_back(1);
    file.add("tokenizer.ggml.model", "gpt2");
    file.add("tokenizer.ggml.pre", "llama-bpe");
    file.add("tokenizer.ggml.tokens", tokens);
    file.add("tokenizer.ggml.token_type", types);
    file.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    file.add("tokenizer.ggml.bos_token_id", uint32_t{0});
    file.add("tokenizer.ggml.eos_token_id", uint32_t{1});
  }

  static const GgufType& type_named(const std::string& name) {
    uint32_t code = 0;
    while (gguf_type(code) == nullptr || gguf_type(code)->name != name) ++code;
    return *gguf_type(code);
  }

  void gains(const std::string& name) {
    std::uniform_real_distribution<float> noise(0.8f, 1.2f);
    std::vector<float> values(kHidden);
    for (float& value : values) value = noise(random_);
    for (GgufWriter* file : {&quantized_, &bf16_}) file->add_tensor(name + ".weight", values);
  }

  void matrix(const std::string& name, int64_t rows, int64_t cols, const std::string& type_name) {
    const GgufType& type = type_named(type_name);
    std::vector<float> values(static_cast<size_t>(rows * cols));
    std::string blocks;
    if (type_name == "BF16") {
      std::normal_distribution<float> noise(0, 0.1f);
      for (float& value : values) value = noise(random_);
    } else {
      blocks = blocks_of(type, rows * cols / type.elements);
      dequantize_blocks(type, reinterpret_cast<const std::byte*>(blocks.data()), values);
    }
    std::vector<bf16> rounded(values.size());
    convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(values.data()), rounded.data(), rows * cols);
    const std::string in_bf16 = bytes_of(rounded);
    const uint32_t bf16_code = type_named("BF16").code;
    quantized_.add_tensor(name + ".weight", {rows, cols}, blocks.empty() ? bf16_code : type.code,
                          blocks.empty() ? in_bf16 : blocks);
    bf16_.add_tensor(name + ".weight", {rows, cols}, bf16_code, in_bf16);
  }

  // Any bytes, with fp16 numbers in the places of scales that make elements of about 0.1.
  std::string blocks_of(const GgufType& type, int64_t count) {
    struct Halves {
      std::string_view type;
      std::vector<size_t> places;
      float size;
    };
    static const std::vector<Halves> kHalves = {
        {"Q4_0", {0}, 0.02f},      {"Q4_1", {0, 2}, 0.02f},    {"Q5_0", {0}, 0.01f},    {"Q5_1", {0, 2}, 0.01f},
        {"Q8_0", {0}, 0.001f},     {"Q2_K", {80, 82}, 0.005f}, {"Q3_K", {108}, 0.002f}, {"Q4_K", {0, 2}, 0.0005f},
        {"Q5_K", {0, 2}, 0.0003f}, {"Q6_K", {208}, 0.00005f},  {"IQ4_NL", {0}, 0.001f}, {"IQ4_XS", {0}, 0.0001f}};
    const auto of_type = std::ranges::find(kHalves, type.name, &Halves::type);
    std::uniform_real_distribution<float> noise(0.5f, 1.5f);
    std::string bytes(static_cast<size_t>(count) * type.bytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    for (size_t at = 0; at < bytes.size(); at += type.bytes)
      for (const size_t place : of_type->places) {
        const auto half = static_cast<_Float16>(of_type->size * noise(random_));
        std::memcpy(bytes.data() + at + place, &half, sizeof half);
      }
    return bytes;
  }

  ScratchFolder folder_;
  GgufWriter quantized_, bf16_;
  std::mt19937 random_{1};
};

}  // namespace nodewright::test
