// Llamas whose feed-forward block is a mixture of experts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "kernels_src/experts/expert_shape.h"
#include "models/config/families/families.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

// The key is another in files that transformers 5 has written.
void read_experts(const ConfigFields& config, int64_t count, int64_t chosen, bool normalised, ModelConfig& c) {
  const char* key = config.has("num_experts") ? "num_experts" : "num_local_experts";
  c.experts.count = config.integer(key, count, 1, kMostExperts);
  c.experts.chosen = config.integer("num_experts_per_tok", chosen, 1, kMostChosenExperts);
  if (c.experts.chosen > c.experts.count)
    config.refuse(
        fmt::format("num_experts_per_tok is {}, expected at most {}, {}", c.experts.chosen, key, c.experts.count));
  c.experts.normalised = normalised;
  c.names.router = "mlp.gate";
  c.names.experts = "mlp.experts";
  c.names.gate = "gate_proj", c.names.up = "up_proj", c.names.down = "down_proj";
}

// Layers without experts among those with them are another network.
void expect_experts_everywhere(const ConfigFields& config) {
  if (const int64_t step = config.integer("decoder_sparse_step", 1, 1, kMostLayers); step != 1)
    config.refuse(fmt::format("decoder_sparse_step is {}, only 1 is supported", step));
  const nlohmann::json* plain = config.find("mlp_only_layers");
  if (plain && !(plain->is_array() && plain->empty()))
    config.refuse(fmt::format("mlp_only_layers is {}, only an empty list is supported", in_quotes(plain->dump())));
}

}  // namespace

void read_qwen3_moe(const ConfigFields& config, ModelConfig& c) {
  read_qwen3_like(config,
                  {.hidden = 2048,
                   .layers = 24,
                   .kv_heads = 4,
                   .intermediate = 6144,
                   .vocab = 151936,
                   .max_position = 32768,
                   .bos = {},
                   .eos = {}},
                  c);
  c.intermediate = config.integer("moe_intermediate_size", 768, 1, kWidest);
  read_experts(config, 128, 8, config.boolean("norm_topk_prob", false), c);
  expect_experts_everywhere(config);
}

// Queries and keys are normed over all heads at once.
void read_olmoe(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config,
                  {.hidden = 2048,
                   .layers = 16,
                   .heads = 16,
                   .intermediate = 2048,
                   .vocab = 50304,
                   .max_position = 4096,
                   .eps = 1e-5,
                   .bos = {},
                   .eos = 50279,
                   .pad = 1},
                  c);
  c.head_norm = HeadNorm::width;
  c.names.q_norm = "self_attn.q_norm";
  c.names.k_norm = "self_attn.k_norm";
  c.biases.qkv = c.biases.out = config.boolean("attention_bias", false);
  if (config.find("clip_qkv")) config.refuse("clip_qkv is set, queries, keys and values are not clipped");
  read_experts(config, 64, 8, config.boolean("norm_topk_prob", false), c);
}

void read_mixtral(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {.kv_heads = 8, .intermediate = 14336, .max_position = 4096 * 32, .theta = 1e6, .eps = 1e-5},
                  c);
  read_window_of_all(config, {}, c);
  read_experts(config, 8, 2, true, c);
  c.names.router = "block_sparse_moe.gate";
  c.names.experts = "block_sparse_moe.experts";
  c.names.gate = "w1", c.names.up = "w3", c.names.down = "w2";
}

}  // namespace nodewright
