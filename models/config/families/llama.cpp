// Llama and what differs from it by a key or two.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/families/families.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

// attention_bias and mlp_bias, each of all its products.
void read_biases(const ConfigFields& config, ModelConfig& c) {
  c.biases.qkv = c.biases.out = config.boolean("attention_bias", false);
  c.biases.gate_up = c.biases.down = config.boolean("mlp_bias", false);
}

// Qwen's windows: where use_sliding_window asks for them, of the last layers.
void read_qwen_windows(const ConfigFields& config, ModelConfig& c) {
  const bool slides = config.boolean("use_sliding_window", false);
  const int64_t first = config.integer("max_window_layers", 28, 0, kMostLayers);
  c.window = slides ? config.integer("sliding_window", 4096, 1, kLongestContext) : 0;
  c.sliding = read_sliding(config, c.layers, [&](int64_t layer) { return slides && layer >= first; });
  for (const bool layer : c.sliding)
    if (layer && !slides) config.refuse("layer_types holds 'sliding_attention', but use_sliding_window is not true");
}

}  // namespace

void read_llama(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {}, c);
  read_biases(config, c);
}

// A Llama with a window in every layer, in early releases.
void read_mistral(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {.kv_heads = 8, .intermediate = 14336, .max_position = 4096 * 32}, c);
  read_window_of_all(config, 4096, c);
  if (auto types = read_layer_types(config, c.layers)) c.sliding = *std::move(types);  // Ministral
}

// A Llama with biases of q, k and v.
void read_qwen2(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(
      config, {.kv_heads = 32, .intermediate = 22016, .vocab = 151936, .max_position = 32768, .bos = {}, .eos = {}}, c);
  c.biases.qkv = true;
  read_qwen_windows(config, c);
}

// A Llama whose query and key heads are normed.
void read_qwen3(const ConfigFields& config, ModelConfig& c) {
  read_qwen3_like(config,
                  {.kv_heads = 32,
                   .head_dim = 128,
                   .intermediate = 22016,
                   .vocab = 151936,
                   .max_position = 32768,
                   .bos = {},
                   .eos = {}},
                  c);
}
void read_qwen3_like(const ConfigFields& config, const Defaults& absent, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, absent, c);
  c.head_norm = HeadNorm::head;
  c.names.q_norm = "self_attn.q_norm";
  c.names.k_norm = "self_attn.k_norm";
  c.biases.qkv = c.biases.out = config.boolean("attention_bias", false);
  read_qwen_windows(config, c);
}

// A Llama with fused tensors, whose heads may turn in part.
void read_phi3(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config,
                  {.hidden = 3072,
                   .intermediate = 8192,
                   .vocab = 32064,
                   .max_position = 4096,
                   .eps = 1e-5,
                   .eos = 32000,
                   .pad = 32000},
                  c);
  c.names.qkv = {"self_attn.qkv_proj"};
  c.names.gate = c.names.up = "";
  c.names.gate_up = "mlp.gate_up_proj";
  read_window_of_all(config, {}, c);
}

// A Llama with four factors.
void read_granite(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {}, c);
  read_biases(config, c);
  const auto factor = [&](const char* key) { return config.number(key, 1, 0, 1e9, true); };
  c.embedding_scale = static_cast<float>(factor("embedding_multiplier"));
  c.residual_scale = static_cast<float>(factor("residual_multiplier"));
  c.query_scale = factor("attention_multiplier");
  c.logit_scale = static_cast<float>(1 / factor("logits_scaling"));
}

// A Llama of which every fourth layer does not rotate.
void read_smollm3(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config,
                  {.hidden = 2048,
                   .layers = 36,
                   .heads = 16,
                   .kv_heads = 4,
                   .vocab = 128256,
                   .max_position = 32768,
                   .theta = 2e6,
                   .tied = true,
                   .bos = 128000,
                   .eos = 128001,
                   .pad = 128004},
                  c);
  read_biases(config, c);
  const int64_t interval = config.integer("no_rope_layer_interval", 4, 1, kMostLayers);
  for (int64_t l = 0; l < c.layers; ++l) c.unrotated.push_back((l + 1) % interval == 0);
  if (const nlohmann::json* rotates = config.find("no_rope_layers")) {  // 1: rotates
    if (!rotates->is_array() || rotates->size() != static_cast<size_t>(c.layers))
      config.refuse(fmt::format("no_rope_layers is {}, expected a list of num_hidden_layers numbers, {}",
                                in_quotes(rotates->dump()), c.layers));
    for (size_t l = 0; l < rotates->size(); ++l) c.unrotated[l] = rotates->at(l) == 0;
  }
  const bool slides = config.boolean("use_sliding_window", false) && config.find("sliding_window");
  if (!slides) return;
  c.window = config.integer("sliding_window", 4096, 1, kLongestContext);
  c.sliding = read_sliding(config, c.layers, [&](int64_t layer) { return !c.rotates(layer); });
}

// A Llama with the names of a GPT-2.
void read_exaone(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, config.has("activation_function") ? "activation_function" : "hidden_act", "silu");
  Defaults absent{.layers = config.integer("num_layers", 32, 1, kMostLayers),
                  .kv_heads = 8,
                  .intermediate = 14336,
                  .vocab = 102400,
                  .max_position = 4096,
                  .theta = 5e5,
                  .eps = 1e-5,
                  .eos = 361,
                  .pad = 0};
  if (config.has("layer_norm_epsilon")) absent.eps_key = "layer_norm_epsilon";
  read_llama_like(config, absent, c);
  read_biases(config, c);
  TensorNames& n = c.names;
  n.prefix = "transformer.";
  n.embedding = "wte", n.final_norm = "ln_f", n.layers = "h";
  n.attention_norm = "ln_1", n.feed_forward_norm = "ln_2";
  n.qkv = {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"};
  n.out = "attn.attention.out_proj";
  n.gate = "mlp.c_fc_0", n.up = "mlp.c_fc_1", n.down = "mlp.c_proj";
}

}  // namespace nodewright
