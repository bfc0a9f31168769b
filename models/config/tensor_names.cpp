#include "models/config/tensor_names.h"

namespace nodewright {
namespace {

TensorNames llama() {
  TensorNames n;
  n.prefix = "model.";
  n.embedding = "embed_tokens";
  n.final_norm = "norm";
  n.layers = "layers";
  n.attention_norm = "input_layernorm";
  n.qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  n.out = "self_attn.o_proj";
  n.feed_forward_norm = "post_attention_layernorm";
  n.gate = "mlp.gate_proj";
  n.up = "mlp.up_proj";
  n.down = "mlp.down_proj";
  n.unused_endings = {".rotary_emb.inv_freq"};
  return n;
}

TensorNames qwen3() {
  TensorNames n = llama();
  n.q_norm = "self_attn.q_norm";
  n.k_norm = "self_attn.k_norm";
  return n;
}

TensorNames gemma3() {
  TensorNames n = qwen3();
  n.attention_post_norm = "post_attention_layernorm";
  n.feed_forward_norm = "pre_feedforward_layernorm";
  n.feed_forward_post_norm = "post_feedforward_layernorm";
  return n;
}

TensorNames gpt2() {
  TensorNames n;
  n.prefix = "transformer.";
  n.embedding = "wte";
  n.positions = "wpe";
  n.final_norm = "ln_f";
  n.layers = "h";
  n.attention_norm = "ln_1";
  n.qkv = {"attn.c_attn"};
  n.out = "attn.c_proj";
  n.feed_forward_norm = "ln_2";
  n.up = "mlp.c_fc";
  n.down = "mlp.c_proj";
  n.transposed = true;
  n.unused_endings = {".attn.bias", ".attn.masked_bias"};  // the causal mask
  return n;
}

}  // namespace

TensorNames tensor_names(const ModelConfig& config) {
  switch (config.family) {
    case Family::llama:
      return llama();
    case Family::qwen3:
      return qwen3();
    case Family::gemma3:
      return gemma3();
    case Family::gpt2:
      return gpt2();
  }
  return {};
}

}  // namespace nodewright
