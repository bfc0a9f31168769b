// The network of small random checkpoints in quantized formats: its sizes, its config.json and its tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace nodewright::test {

struct SmallNetwork {
  static constexpr int64_t kHidden = 256, kHeads = 4, kHeadDim = 64, kVocab = 90, kLayers = 2, kChosen = 2;

  int64_t intermediate = 384, kv_heads = 2;
  int64_t experts = 0;  // of each layer; 0: its feed-forward blocks are dense

  // Calls plain(module, shape, mean, size) of what no format quantizes, and coded(module, rows, cols) of the others.
  template <class Plain, class Coded>
  void each_tensor(const Plain& plain, const Coded& coded) const {
    plain("model.embed_tokens", {kVocab, kHidden}, 0, 1);
    for (int64_t l = 0; l < kLayers; ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      plain(layer + "input_layernorm", {kHidden}, 1, 0.2f);
      coded(layer + "self_attn.q_proj", kHeads * kHeadDim, kHidden);
      coded(layer + "self_attn.k_proj", kv_heads * kHeadDim, kHidden);
      coded(layer + "self_attn.v_proj", kv_heads * kHeadDim, kHidden);
      coded(layer + "self_attn.o_proj", kHidden, kHeads * kHeadDim);
      plain(layer + "post_attention_layernorm", {kHidden}, 1, 0.2f);
      if (experts == 0) {
        coded(layer + "mlp.gate_proj", intermediate, kHidden);
        coded(layer + "mlp.up_proj", intermediate, kHidden);
        coded(layer + "mlp.down_proj", kHidden, intermediate);
        continue;
      }
      plain(router(l), {experts, kHidden}, 0, 0.1f);
      for (int64_t e = 0; e < experts; ++e) {
        const std::string expert = layer + "block_sparse_moe.experts." + std::to_string(e) + ".";
        coded(expert + "w1", intermediate, kHidden);
        coded(expert + "w3", intermediate, kHidden);
        coded(expert + "w2", kHidden, intermediate);
      }
    }
    plain("model.norm", {kHidden}, 1, 0.2f);
    plain("lm_head", {kVocab, kHidden}, 0, 0.1f);
  }

  // The matrices of layers that no format quantizes.
  std::vector<std::string> plain_matrices() const {
    std::vector<std::string> modules{"lm_head"};
    for (int64_t l = 0; l < kLayers && experts > 0; ++l) modules.push_back(router(l));
    return modules;
  }

  nlohmann::json config() const {
    nlohmann::json config = {{"architectures", {experts > 0 ? "MixtralForCausalLM" : "LlamaForCausalLM"}},
                             {"hidden_size", kHidden},
                             {"num_hidden_layers", kLayers},
                             {"num_attention_heads", kHeads},
                             {"num_key_value_heads", kv_heads},
                             {"head_dim", kHeadDim},
                             {"intermediate_size", intermediate},
                             {"vocab_size", kVocab},
                             {"rms_norm_eps", 1e-5},
                             {"max_position_embeddings", 256},
                             {"tie_word_embeddings", false},
                             {"bos_token_id", 1},
                             {"eos_token_id", 2}};
    if (experts > 0) config["num_local_experts"] = experts, config["num_experts_per_tok"] = kChosen;
    return config;
  }

 private:
  static std::string router(int64_t layer) {
    return "model.layers." + std::to_string(layer) + ".block_sparse_moe.gate";
  }
};

// Networks whose matrices two devices share in every format.
inline constexpr SmallNetwork kSharedByTwo{.intermediate = 512, .kv_heads = 4},
    kExpertsSharedByTwo{.intermediate = 256, .kv_heads = 4, .experts = 5};

}  // namespace nodewright::test
