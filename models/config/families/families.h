// How config.json of each family is read: a function a family, in the .cpp files beside this one. Each fills all but
// architecture, dtype and what generation_config.json says, and throws Error for keys that are not supported.
#pragma once

#include "models/config/config_fields.h"
#include "models/config/model_config.h"

namespace nodewright {

struct Defaults;  // family_fields.h

// llama.cpp: norms before the blocks, rotation, a gate.
void read_llama(const ConfigFields& config, ModelConfig& c);
void read_mistral(const ConfigFields& config, ModelConfig& c);
void read_qwen2(const ConfigFields& config, ModelConfig& c);
void read_qwen3(const ConfigFields& config, ModelConfig& c);
void read_qwen3_like(const ConfigFields& config, const Defaults& absent, ModelConfig& c);
void read_phi3(const ConfigFields& config, ModelConfig& c);
void read_granite(const ConfigFields& config, ModelConfig& c);
void read_smollm3(const ConfigFields& config, ModelConfig& c);
void read_exaone(const ConfigFields& config, ModelConfig& c);

// gemma.cpp: norms of 1 + w, scaled embeddings, a gelu gate.
void read_gemma(const ConfigFields& config, ModelConfig& c);
void read_gemma2(const ConfigFields& config, ModelConfig& c);
void read_gemma3(const ConfigFields& config, ModelConfig& c);
void read_gemma3_with_vision(const ConfigFields& config, ModelConfig& c);

// post_norms.cpp: norms after the blocks alone.
void read_olmo2(const ConfigFields& config, ModelConfig& c);
void read_exaone4(const ConfigFields& config, ModelConfig& c);

// mixtures.cpp: experts.
void read_qwen3_moe(const ConfigFields& config, ModelConfig& c);
void read_olmoe(const ConfigFields& config, ModelConfig& c);
void read_mixtral(const ConfigFields& config, ModelConfig& c);

// layer_norm.cpp: LayerNorms.
void read_gpt2(const ConfigFields& config, ModelConfig& c);
void read_gpt_neox(const ConfigFields& config, ModelConfig& c);
void read_starcoder2(const ConfigFields& config, ModelConfig& c);
void read_stablelm(const ConfigFields& config, ModelConfig& c);
void read_cohere(const ConfigFields& config, ModelConfig& c);
void read_cohere2(const ConfigFields& config, ModelConfig& c);

}  // namespace nodewright
