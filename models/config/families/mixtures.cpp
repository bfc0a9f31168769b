// Llamas whose feed-forward blocks, or some of them, are mixtures of experts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels_src/experts/expert_shape.h"
#include "models/config/families/families.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

// How many experts a family's class has where the file is silent, and whether there may be none.
struct ExpertDefaults {
  int64_t count = 0, chosen = 0, least = 1;
};

// The key is another in files that transformers 5 has written. `intermediate`: width of one expert.
void read_experts(const ConfigFields& config, const ExpertDefaults& absent, bool normalised, int64_t intermediate,
                  ModelConfig& c) {
  const char* key = config.has("num_experts") ? "num_experts" : "num_local_experts";
  c.experts.count = config.integer(key, absent.count, absent.least, kMostExperts);
  c.experts.chosen = config.integer("num_experts_per_tok", absent.chosen, 1, kMostChosenExperts);
  if (c.has_experts() && c.experts.chosen > c.experts.count)
    config.refuse(
        fmt::format("num_experts_per_tok is {}, expected at most {}, {}", c.experts.chosen, key, c.experts.count));
  c.experts.normalised = normalised;
  c.experts.intermediate = intermediate;
  c.names.router = "mlp.gate";
  c.names.experts = "mlp.experts";
  c.names.expert_gate = "gate_proj", c.names.expert_up = "up_proj", c.names.expert_down = "down_proj";
}

// Every decoder_sparse_step-th layer has experts, but for those that mlp_only_layers names; it may name layers that do
// not exist. Where none is left, the network is no mixture.
void read_dense_layers(const ConfigFields& config, ModelConfig& c) {
  const int64_t step = config.integer("decoder_sparse_step", 1, 1, std::numeric_limits<int32_t>::max());
  for (int64_t layer = 0; layer < c.layers; ++layer) c.dense.push_back(!c.has_experts() || (layer + 1) % step != 0);
  for (const int64_t layer : config.integers("mlp_only_layers"))
    if (layer >= 0 && layer < c.layers) c.dense[static_cast<size_t>(layer)] = true;
  if (std::ranges::count(c.dense, false) == 0) c.experts = {};
  if (!c.has_experts() || std::ranges::count(c.dense, true) == 0) c.dense.clear();
}

// Every layer has experts, and intermediate_size is their width.
void read_experts_everywhere(const ConfigFields& config, const ExpertDefaults& absent, bool normalised,
                             ModelConfig& c) {
  read_experts(config, absent, normalised, std::exchange(c.intermediate, 0), c);
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
  read_experts(config, {.count = 128, .chosen = 8, .least = 0}, config.boolean("norm_topk_prob", false),
               config.integer("moe_intermediate_size", 768, 1, kWidest), c);
  read_dense_layers(config, c);
  if (!c.has_dense()) c.intermediate = 0;
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
  read_experts_everywhere(config, {.count = 64, .chosen = 8}, config.boolean("norm_topk_prob", false), c);
}

void read_mixtral(const ConfigFields& config, ModelConfig& c) {
  expect_activation(config, "hidden_act", "silu");
  read_llama_like(config, {.kv_heads = 8, .intermediate = 14336, .max_position = 4096 * 32, .theta = 1e6, .eps = 1e-5},
                  c);
  read_window_of_all(config, {}, c);
  read_experts_everywhere(config, {.count = 8, .chosen = 2}, true, c);
  c.names.router = "block_sparse_moe.gate";
  c.names.experts = "block_sparse_moe.experts";
  c.names.expert_gate = "w1", c.names.expert_up = "w3", c.names.expert_down = "w2";
}

}  // namespace nodewright
