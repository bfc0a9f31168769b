// What the families' configuration classes share: sizes, tokens, windows and rotary parameters, read with the defaults
// of each class (transformers 5.23, transformers/models/*/configuration_*.py).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/config_fields.h"
#include "models/config/model_config.h"

namespace nodewright {

// Largest sizes believed, each several times that of any released model; products of three stay below 2^63.
inline constexpr int64_t kMostLayers = 1 << 12;
inline constexpr int64_t kMostHeads = 1 << 12;
inline constexpr int64_t kMostHeadDim = 1 << 12;
inline constexpr int64_t kWidest = 1 << 20;  // hidden, intermediate
inline constexpr int64_t kLongestContext = int64_t{1} << 31;

inline constexpr const char* kSlidingLayer = "sliding_attention";
inline constexpr const char* kGlobalLayer = "full_attention";

// What a family's configuration class says where the file is silent. 0: from the other sizes.
struct Defaults {
  int64_t hidden = 4096, layers = 32, heads = 32, kv_heads = 0, head_dim = 0;
  int64_t intermediate = 11008, vocab = 32000, max_position = 2048;
  double theta = 1e4, eps = 1e-6;
  double rotary_part = 1;  // of a head
  const char* eps_key = "rms_norm_eps";
  bool tied = false;
  std::optional<int64_t> bos = 1, eos = 2, pad = {};
};

// hidden to max_position and eps.
void read_sizes(const ConfigFields& config, const Defaults& absent, ModelConfig& c);
// tied, bos, eos and pad.
void read_tokens(const ConfigFields& config, const Defaults& absent, ModelConfig& c);
// Both, and one table of rotation for all layers: what a Llama has.
void read_llama_like(const ConfigFields& config, const Defaults& absent, ModelConfig& c);

// Throws where one of the keys is true.
void refuse_true(const ConfigFields& config, std::initializer_list<const char*> keys, std::string_view why);
// Throws where the function of the feed-forward block is another.
void expect_activation(const ConfigFields& config, const std::string& key, const std::string& supported);
Activation read_gelu(const ConfigFields& config, const std::string& key, const std::string& absent);

// One table for all layers, and how much of a head it turns (rotary_dim). transformers: rope_scaling, if it is there
// and not empty, else rope_parameters; a rope_theta inside it comes before the one beside it.
void read_rope(const ConfigFields& config, const Defaults& absent, ModelConfig& c);
// One set of parameters; `theta`: where they hold none.
RopeConfig read_rope(const ConfigFields& config, const ConfigFields& rope, double theta, const ModelConfig& c);

// layer_types, if the file has it: which layers slide.
std::optional<std::vector<bool>> read_layer_types(const ConfigFields& config, int64_t layers);
// layer_types, else what `slides` says of each layer.
template <class Slides>
std::vector<bool> read_sliding(const ConfigFields& config, int64_t layers, const Slides& slides) {
  if (auto types = read_layer_types(config, layers)) return *std::move(types);
  std::vector<bool> sliding;
  for (int64_t l = 0; l < layers; ++l) sliding.push_back(slides(l));
  return sliding;
}
// sliding_window of every layer, unless it is null or no shorter than the context.
void read_window_of_all(const ConfigFields& config, std::optional<int64_t> absent, ModelConfig& c);

}  // namespace nodewright
