// The numbers that say what a network is, read from a Hugging Face checkpoint folder. No tensor is looked at here;
// models/weights.h checks that the tensors agree.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace nodewright {

enum class RopeType : uint8_t { plain, linear, llama3 };  // config.json calls plain "default"

// Rotary position embedding. models/rope_frequencies.h turns it into frequencies.
struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;  // base of the frequencies, > 0
  double factor = 1.0;     // linear, llama3: frequencies are divided by it, > 0
  double low = 1.0;        // llama3: original / low is the wavelength, in tokens, above which all is divided
  double high = 4.0;       // llama3: original / high is the wavelength below which nothing is; high > low > 0
  int64_t original = 0;    // llama3: tokens of the context before scaling
};

// What generation_config.json asks for where a request says nothing. An empty field is absent from the file.
struct GenerationDefaults {
  std::optional<bool> sample;         // do_sample: false means greedy
  std::optional<double> temperature;  // >= 0
  std::optional<int64_t> top_k;       // >= 0; 0 keeps every token
  std::optional<double> top_p;        // 0..1
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  int64_t hidden = 0;        // width of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;         // query heads
  int64_t kv_heads = 0;      // key and value heads; divides heads
  int64_t head_dim = 0;      // even; heads * head_dim need not equal hidden
  int64_t intermediate = 0;  // width of the feed-forward layer
  int64_t vocab = 0;         // rows of the embedding and of the head
  int64_t max_position = 0;  // longest context, in tokens
  float eps = 0;             // of RMSNorm, added to the mean square
  bool tied = false;         // the head is the embedding
  RopeConfig rope;
  std::optional<int64_t> bos;  // token ids
  std::vector<int64_t> eos;    // any of them ends a sequence; empty: only a length limit does
  std::optional<int64_t> pad;
  std::string dtype;  // what the file says its weights are ("bfloat16"), empty if it does not; the tensors decide
  GenerationDefaults generation;

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

// Reads folder/config.json and, if present, folder/generation_config.json, whose eos_token_id comes first. Absent keys
// get the defaults of transformers' LlamaConfig (transformers 5.23, models/llama/configuration_llama.py); rotary
// parameters are read in both spellings, rope_theta + rope_scaling and rope_parameters. Throws Error, naming file, key
// and value, for what is missing, of the wrong type, out of range or not supported.
ModelConfig read_model_config(const std::filesystem::path& folder);

}  // namespace nodewright
