#include "models/config/tensor_names.h"

namespace nodewright {

TensorNames llama_names() {
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
  return n;
}

TensorNames gpt2_names() {
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
  return n;
}

}  // namespace nodewright
