// Gemma 1 to 3.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/families/families.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

using nlohmann::json;

// The nearest bf16 of a normal number: 8 significant bits.
float rounded_to_bf16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

// Sliding layers rotate by a table of their own. New spelling: rope_parameters holds one set for each kind of layer;
// old: rope_theta and rope_scaling are the global layers', rope_local_base_freq is the sliding ones' (transformers,
// transformers/models/gemma3/configuration_gemma3.py, convert_rope_params_to_dict).
void read_gemma3_rope(const ConfigFields& config, ModelConfig& c) {
  const json none = json::object();
  const json* nested = config.object("rope_parameters");
  const ConfigFields sets = config.inside(nested ? *nested : none, "rope_parameters.");
  for (const auto& [key, value] : sets.object().items())
    if (key != kSlidingLayer && key != kGlobalLayer)
      config.refuse(fmt::format("rope_parameters.{} is {}, expected one set of parameters for each kind of layer", key,
                                in_quotes(value.dump())),
                    fmt::format("the kinds: {}, {}", kSlidingLayer, kGlobalLayer));
  const auto set_of = [&](const char* kind, const char* theta_key, double theta, const char* scaling_key) {
    json merged = none;
    if (const json* set = sets.object(kind)) merged = *set;
    const json* scaling = scaling_key ? config.object(scaling_key) : nullptr;
    if (scaling) merged.update(*scaling);
    const ConfigFields rope =
        config.inside(merged, scaling ? "rope_scaling." : fmt::format("rope_parameters.{}.", kind));
    return read_rope(config, rope, config.number(theta_key, theta, 0, 1e15, true), c);
  };
  c.rope = set_of(kGlobalLayer, "rope_theta", 1e6, "rope_scaling");
  c.local_rope = set_of(kSlidingLayer, "rope_local_base_freq", 1e4, nullptr);
}

void read_shared(const ConfigFields& config, ModelConfig& c) {
  c.norm = Norm::rms_one_plus;
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = rounded_to_bf16(std::sqrt(static_cast<double>(c.hidden)));
  refuse_true(config, {"attention_bias"}, "biases are not supported");
  refuse_true(config, {"use_bidirectional_attention"}, "only causal attention is supported");
}

void norm_behind_too(ModelConfig& c) {
  c.post_norms = true;
  c.names.attention_post_norm = "post_attention_layernorm";
  c.names.feed_forward_norm = "pre_feedforward_layernorm";
  c.names.feed_forward_post_norm = "post_feedforward_layernorm";
}

void expect_gelu(const ConfigFields& config) {
  const char* key = config.find("hidden_activation") ? "hidden_activation" : "hidden_act";
  // The first release said gelu and meant its approximation.
  if (config.text(key, "gelu") != "gelu") expect_activation(config, key, "gelu_pytorch_tanh");
}

constexpr Defaults kGemma2{.hidden = 2304,
                           .layers = 26,
                           .heads = 8,
                           .kv_heads = 4,
                           .head_dim = 256,
                           .intermediate = 9216,
                           .vocab = 256000,
                           .max_position = 8192,
                           .tied = true,
                           .bos = 2,
                           .eos = 1,
                           .pad = 0};

}  // namespace

void read_gemma(const ConfigFields& config, ModelConfig& c) {
  expect_gelu(config);
  Defaults absent = kGemma2;
  absent.hidden = 3072, absent.layers = 28, absent.heads = absent.kv_heads = 16, absent.intermediate = 24576;
  read_llama_like(config, absent, c);
  read_shared(config, c);
}

// Norms after the blocks, too, windows in every other layer, capped scores and logits.
void read_gemma2(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  read_llama_like(config, kGemma2, c);
  read_shared(config, c);
  norm_behind_too(c);
  c.query_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256, 0, 1e9, true));
  const auto cap = [&](const char* key, double absent) {  // null: none
    if (config.has(key) && !config.find(key)) return 0.0f;
    return static_cast<float>(config.number(key, absent, 0, 1e9, true));
  };
  c.score_cap = cap("attn_logit_softcapping", 50);
  c.logit_cap = cap("final_logit_softcapping", 30);
  c.window = config.integer("sliding_window", 4096, 1, kLongestContext);
  c.sliding = read_sliding(config, c.layers, [](int64_t layer) { return layer % 2 == 0; });
}

// Normed heads instead of caps; sliding layers rotate by a table of their own.
void read_gemma3(const ConfigFields& config, ModelConfig& c) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (const json* value = config.find(key))
      config.refuse(fmt::format("{} is {}, capped scores and logits are not supported", key, in_quotes(value->dump())));
  expect_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  Defaults absent = kGemma2;
  absent.vocab = 262208, absent.max_position = 131072;
  read_sizes(config, absent, c);
  read_tokens(config, absent, c);
  read_shared(config, c);
  norm_behind_too(c);
  c.head_norm = HeadNorm::head;
  c.names.q_norm = "self_attn.q_norm";
  c.names.k_norm = "self_attn.k_norm";
  c.query_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256, 0, 1e9, true));
  read_gemma3_rope(config, c);
  c.window = config.integer("sliding_window", 4096, 1, kLongestContext);
  const int64_t pattern = config.integer("sliding_window_pattern", 6, 1, kMostLayers);
  c.sliding = read_sliding(config, c.layers, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

// The text part of a checkpoint that also sees: its configuration lies in text_config, its tensors below a prefix.
void read_gemma3_with_vision(const ConfigFields& config, ModelConfig& c) {
  const json* text = config.object("text_config");
  if (!text) config.refuse("text_config is missing");
  json merged = *text;
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings"})
    if (config.find(key) && (!merged.contains(key) || merged[key].is_null() || merged[key] == json::array()))
      merged[key] = *config.find(key);
  read_gemma3(config.inside(merged, "text_config."), c);
  c.names.prefix = "language_model.model.";
  c.names.other_prefix = "model.language_model.";
  c.names.unused_beginnings = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                               "model.multi_modal_projector."};
}

}  // namespace nodewright
