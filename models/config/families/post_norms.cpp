// Families that norm what a block adds to the residual, and nothing in front of it.
#include "models/config/families/families.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

void norm_behind(ModelConfig& c) {
  c.pre_norms = false;
  c.post_norms = true;
  c.names.attention_norm = c.names.feed_forward_norm = "";
  c.names.attention_post_norm = "post_attention_layernorm";
  c.names.feed_forward_post_norm = "post_feedforward_layernorm";
  c.names.q_norm = "self_attn.q_norm";
  c.names.k_norm = "self_attn.k_norm";
}

}  // namespace

// Queries and keys are normed over all heads at once.
void read_olmo2(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {.vocab = 50304, .eps = 1e-5, .bos = {}, .eos = 50279, .pad = 1}, c);
  norm_behind(c);
  c.head_norm = HeadNorm::width;
  c.biases.qkv = c.biases.out = config.boolean("attention_bias", false);
}

// Queries and keys are normed head by head. Where some layers slide, the others do not rotate.
void read_exaone4(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {.kv_heads = 32, .intermediate = 16384, .vocab = 102400, .eps = 1e-5, .bos = 0}, c);
  norm_behind(c);
  c.head_norm = HeadNorm::head;
  const bool hybrid = config.has("sliding_window") ? config.find("sliding_window") != nullptr : true;
  if (!hybrid) return;
  c.window = config.integer("sliding_window", 4096, 1, kLongestContext);
  if (const auto types = read_layer_types(config, c.layers)) {
    c.sliding = *types;
  } else {
    const int64_t pattern = config.integer("sliding_window_pattern", 4, 1, kMostLayers);
    for (int64_t l = 0; l < c.layers; ++l) c.sliding.push_back((l + 1) % pattern != 0);
  }
  for (const bool slides : c.sliding) c.unrotated.push_back(!slides);
}

}  // namespace nodewright
