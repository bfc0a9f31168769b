#include "models/config/architectures.h"

#include "models/config/families/families.h"

namespace nodewright {
namespace {

constexpr Architecture kArchitectures[] = {{"LlamaForCausalLM", read_llama},
                                           {"MistralForCausalLM", read_mistral},
                                           {"MinistralForCausalLM", read_mistral},
                                           {"Qwen2ForCausalLM", read_qwen2},
                                           {"Qwen3ForCausalLM", read_qwen3},
                                           {"Phi3ForCausalLM", read_phi3},
                                           {"GraniteForCausalLM", read_granite},
                                           {"SmolLM3ForCausalLM", read_smollm3},
                                           {"ExaoneForCausalLM", read_exaone},
                                           {"GemmaForCausalLM", read_gemma},
                                           {"Gemma2ForCausalLM", read_gemma2},
                                           {"Gemma3ForCausalLM", read_gemma3},
                                           {"Gemma3ForConditionalGeneration", read_gemma3_with_vision},
                                           {"Olmo2ForCausalLM", read_olmo2},
                                           {"Exaone4ForCausalLM", read_exaone4},
                                           {"Qwen3MoeForCausalLM", read_qwen3_moe},
                                           {"OlmoeForCausalLM", read_olmoe},
                                           {"MixtralForCausalLM", read_mixtral},
                                           {"GPT2LMHeadModel", read_gpt2},
                                           {"GPTNeoXForCausalLM", read_gpt_neox},
                                           {"Starcoder2ForCausalLM", read_starcoder2},
                                           {"StableLmForCausalLM", read_stablelm},
                                           {"CohereForCausalLM", read_cohere},
                                           {"Cohere2ForCausalLM", read_cohere2}};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

}  // namespace nodewright
