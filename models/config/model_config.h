// The numbers that say what a network is, read from a Hugging Face checkpoint folder. No tensor is looked at here;
// models/weights/weights.h checks that the tensors agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels_src/projection/activation.h"
#include "kernels_src/residual/norm.h"
#include "models/config/generation_config.h"

namespace nodewright {

enum class RopeType : uint8_t { plain, linear, llama3 };  // config.json calls plain "default"

// Rotary position embedding. models/config/rope_frequencies.h turns it into frequencies.
struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;  // base of the frequencies, > 0
  double factor = 1.0;     // linear, llama3: frequencies are divided by it, > 0
  double low = 1.0;        // llama3: original / low is the wavelength, in tokens, above which all is divided
  double high = 4.0;       // llama3: original / high is the wavelength below which nothing is; high > low > 0
  int64_t original = 0;    // llama3: tokens of the context before scaling
};

// Which names a checkpoint's tensors have (models/config/tensor_names.h); the arithmetic is in the fields of
// ModelConfig.
enum class Family : uint8_t { llama, qwen3, gemma3, gpt2 };

// Which products of a layer have one; q, k and v are one product.
struct Biases {
  bool qkv = false, out = false, gate_up = false, down = false;
  bool operator==(const Biases&) const = default;
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  Family family = Family::llama;
  int64_t hidden = 0;  // width of the residual stream
  int64_t layers = 0;
  int64_t heads = 0;         // query heads
  int64_t kv_heads = 0;      // key and value heads; divides heads
  int64_t head_dim = 0;      // even; heads * head_dim need not equal hidden
  int64_t intermediate = 0;  // width of the feed-forward layer
  int64_t vocab = 0;         // rows of the embedding and of the head
  int64_t max_position = 0;  // longest context, in tokens
  float eps = 0;             // of the norms, added to the mean square or variance
  bool tied = false;         // the head is the embedding

  Norm norm = Norm::rms;                     // of every norm but those of a family without it
  bool head_norm = false;                    // q and k are normed, head by head, before rotation
  Biases biases;                             // of the products of a layer
  Activation activation = Activation::silu;  // of the feed-forward block
  bool gated = true;                         // f(gate) * up; else f(up)
  float embedding_scale = 1;                 // the embedding times this enters the residual stream
  std::optional<double> query_scale;         // of q . k; absent: head_dim^-1/2
  bool learned_positions = false;            // positions have an embedding, and q and k are not rotated
  RopeConfig rope;                           // of global layers
  std::optional<RopeConfig> local_rope;      // of sliding layers; absent: the same
  int64_t window = 0;                        // keys that a query of a sliding layer attends to, its own included
  std::vector<bool> sliding;                 // [layers]; empty: none

  std::optional<int64_t> bos;  // token ids
  std::vector<int64_t> eos;    // any of them ends a sequence; empty: only a length limit does
  std::optional<int64_t> pad;
  std::string dtype;  // what the file says its weights are ("bfloat16"), empty if it does not; the tensors decide
  GenerationDefaults generation;

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
  bool is_sliding(int64_t layer) const { return !sliding.empty() && sliding[static_cast<size_t>(layer)]; }
  int64_t window_of(int64_t layer) const { return is_sliding(layer) ? window : 0; }  // 0: all keys
  int64_t window_of_all() const { return std::ranges::count(sliding, true) == layers ? window : 0; }
  // Layers whose pages of the cache are held alike: those that see all keys, and beside them those with a window. One
  // group where all layers are alike.
  int64_t sliding_layers() const { return std::ranges::count(sliding, true); }
  int64_t page_groups() const { return sliding_layers() > 0 && sliding_layers() < layers ? 2 : 1; }
  int64_t page_group(int64_t layer) const { return page_groups() > 1 && is_sliding(layer) ? 1 : 0; }
  int64_t layers_of_group(int64_t group) const {
    return group == 1 ? sliding_layers() : layers - (page_groups() > 1 ? sliding_layers() : 0);
  }
};

// Reads folder/config.json and, if present, folder/generation_config.json, whose eos_token_id comes first. Absent keys
// get the defaults of transformers' configuration of that family (transformers 5.23, models/*/configuration_*.py);
// rotary parameters are read in both spellings, rope_theta + rope_scaling and rope_parameters. Throws Error, naming
// file, key and value, for what is missing, of the wrong type, out of range or not supported.
ModelConfig read_model_config(const std::filesystem::path& folder);

}  // namespace nodewright
