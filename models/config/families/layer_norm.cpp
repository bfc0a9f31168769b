// Families with LayerNorms: GPT-2 and GPT-NeoX, StarCoder2, StableLM, Cohere.
#include <fmt/format.h>

#include "base/json_file.h"
#include "models/config/families/families.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

// A feed-forward block without a gate.
void read_ungated(const ConfigFields& config, const char* key, const char* absent, ModelConfig& c) {
  c.gated = false;
  c.activation = read_gelu(config, key, absent);
  c.names.gate = "";
}

}  // namespace

// GPT-2, and nanoGPT saved as one; nanoGPT's own gelu is exact. Sizes go by the names of this family or of the others.
void read_gpt2(const ConfigFields& config, ModelConfig& c) {
  const Defaults absent{.hidden = 768,
                        .layers = 12,
                        .heads = 12,
                        .kv_heads = 0,
                        .head_dim = 0,
                        .intermediate = 0,
                        .vocab = 50257,
                        .max_position = 1024,
                        .tied = true,
                        .bos = 50256,
                        .eos = 50256,
                        .pad = {}};
  c.norm = Norm::layer;
  c.biases = {.qkv = true, .out = true, .gate_up = true, .down = true};
  c.learned_positions = true;
  c.gated = false;
  refuse_true(config, {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}, "which is not supported");
  const auto size = [&](const char* key, const char* other, int64_t value, int64_t most) {
    return config.integer(key, config.integer(other, value, 1, most), 1, most);
  };
  c.hidden = size("n_embd", "hidden_size", absent.hidden, kWidest);
  c.layers = size("n_layer", "num_hidden_layers", absent.layers, kMostLayers);
  c.heads = c.kv_heads = size("n_head", "num_attention_heads", absent.heads, kMostHeads);
  if (c.hidden % c.heads != 0)
    config.refuse(fmt::format("n_embd is {}, expected a multiple of n_head, {}", c.hidden, c.heads));
  c.head_dim = c.hidden / c.heads;
  c.intermediate = config.integer("n_inner", 4 * c.hidden, 1, kWidest);
  c.vocab = config.integer("vocab_size", absent.vocab, 1, kMostTokens);
  c.max_position = size("n_positions", "max_position_embeddings", absent.max_position, kMostTokens);
  c.eps = static_cast<float>(config.number("layer_norm_epsilon", 1e-5, 0, 1, false));
  c.activation = read_gelu(config, "activation_function", "gelu_new");
  if (!config.boolean("scale_attn_weights", true)) c.query_scale = 1;
  read_tokens(config, absent, c);
  c.names = gpt2_names();
}

// Heads that turn in part, q, k and v of each head together in one tensor; attention and feed-forward side by side.
void read_gpt_neox(const ConfigFields& config, ModelConfig& c) {
  c.norm = Norm::layer;
  const Defaults absent{.hidden = 6144,
                        .layers = 44,
                        .heads = 64,
                        .intermediate = 24576,
                        .vocab = 50432,
                        .eps = 1e-5,
                        .rotary_part = 0.25,
                        .eps_key = "layer_norm_eps",
                        .bos = 0};
  read_llama_like(config, absent, c);
  c.kv_heads = c.heads;  // as transformers has it, whatever the file says: one tensor of three times the width
  c.biases = {.qkv = true, .out = true, .gate_up = true, .down = true};
  c.biases.qkv = c.biases.out = config.boolean("attention_bias", true);
  if (config.boolean("use_parallel_residual", true)) c.blocks = Blocks::parallel;
  read_ungated(config, "hidden_act", "gelu", c);
  TensorNames& n = c.names;
  n.prefix = "gpt_neox.";
  n.embedding = "embed_in", n.final_norm = "final_layer_norm", n.head = "embed_out";
  n.qkv = {"attention.query_key_value"};
  n.fused = FusedHeads::by_head;
  n.out = "attention.dense", n.up = "mlp.dense_h_to_4h", n.down = "mlp.dense_4h_to_h";
}

void read_starcoder2(const ConfigFields& config, ModelConfig& c) {
  c.norm = Norm::layer;
  read_llama_like(config,
                  {.hidden = 3072,
                   .layers = 30,
                   .heads = 24,
                   .kv_heads = 2,
                   .intermediate = 12288,
                   .vocab = 49152,
                   .max_position = 4096,
                   .eps = 1e-5,
                   .eps_key = "norm_epsilon",
                   .tied = true,
                   .bos = 50256,
                   .eos = 50256},
                  c);
  const bool biases = config.boolean("use_bias", true);
  c.biases = {.qkv = biases, .out = biases, .gate_up = biases, .down = biases};
  read_ungated(config, "hidden_act", "gelu_pytorch_tanh", c);
  c.names.up = "mlp.c_fc", c.names.down = "mlp.c_proj";
  read_window_of_all(config, {}, c);
}

// A Llama with LayerNorms, whose heads turn in part.
void read_stablelm(const ConfigFields& config, ModelConfig& c) {
  c.norm = Norm::layer;
  expect_activation(config, "hidden_act", "silu");
  refuse_true(config, {"qk_layernorm"}, "LayerNorms of single heads are not supported");
  read_llama_like(config,
                  {.hidden = 2560,
                   .kv_heads = 32,
                   .intermediate = 6912,
                   .vocab = 50304,
                   .max_position = 4096,
                   .eps = 1e-5,
                   .rotary_part = 0.25,
                   .eps_key = "layer_norm_eps",
                   .bos = 0,
                   .eos = 0},
                  c);
  c.biases.qkv = config.boolean("use_qkv_bias", false);
  if (!config.boolean("use_parallel_residual", false)) return;
  c.blocks = Blocks::parallel_one_norm;
  c.names.feed_forward_norm = "";
}

// One LayerNorm without a shift before both blocks, which stand side by side; neighbours turn.
void read_cohere(const ConfigFields& config, ModelConfig& c) {
  c.norm = Norm::layer;
  c.norm_shifts = false;
  expect_activation(config, "hidden_act", "silu");
  refuse_true(config, {"use_qk_norm"}, "LayerNorms of single heads are not supported");
  read_llama_like(config,
                  {.hidden = 8192,
                   .layers = 40,
                   .heads = 64,
                   .intermediate = 22528,
                   .vocab = 256000,
                   .max_position = 8192,
                   .theta = 5e5,
                   .eps = 1e-5,
                   .eps_key = "layer_norm_eps",
                   .tied = true,
                   .bos = 5,
                   .eos = 255001,
                   .pad = 0},
                  c);
  c.biases.qkv = c.biases.out = config.boolean("attention_bias", false);
  c.blocks = Blocks::parallel_one_norm;
  c.names.feed_forward_norm = "";
  c.rotates_neighbours = true;
  c.logit_scale = static_cast<float>(config.number("logit_scale", 0.0625, 0, 1e9, true));
}

// Three of four layers slide; the others do not rotate.
void read_cohere2(const ConfigFields& config, ModelConfig& c) {
  read_cohere(config, c);
  c.window = config.integer("sliding_window", 4096, 1, kLongestContext);
  const int64_t pattern = config.integer("sliding_window_pattern", 4, 1, kMostLayers);
  c.sliding = read_sliding(config, c.layers, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  for (const bool slides : c.sliding) c.unrotated.push_back(!slides);
}

}  // namespace nodewright
