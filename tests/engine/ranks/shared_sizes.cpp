#include "tests/engine/ranks/shared_sizes.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {
namespace {

// Sets those of a number's names in the families that the file has.
void set_any(nlohmann::json& config, std::initializer_list<const char*> names, int64_t value) {
  for (const char* name : names)
    if (config.contains(name)) config[name] = value;
}

}  // namespace

std::vector<std::string> split_goldens(const std::vector<std::string>& but) {
  std::vector<std::string> names{"llama/odd_sizes", "gpt2/nanogpt"};
  for (const std::string& name : kFamilyModels)
    if (!name.starts_with("gpt_neox")) names.push_back(name);
  std::erase_if(names, [&](const std::string& name) { return std::ranges::find(but, name) != but.end(); });
  return names;
}

std::vector<std::string> shared_families() {
  return {"cohere/parallel",   "cohere2/hybrid",      "exaone/names",        "exaone4/hybrid",
          "gemma/first",       "gemma2/caps",         "gemma3/window_16",    "gpt2/nanogpt",
          "gpt_neox/parallel", "gpt_neox/sequential", "granite/multipliers", "llama/biases",
          "mistral/window_16", "mixtral/two_of_four", "olmo2/wide_norms",    "olmoe/wide_norms",
          "phi3/long",         "qwen2/biases",        "qwen3/normed_heads",  "qwen3_moe/every_second",
          "smollm3/unrotated", "stablelm/partial",    "starcoder2/window_16"};
}

void write_shared_sizes(const std::string& golden, const std::filesystem::path& folder, int64_t layers,
                        bool in_eights) {
  std::ifstream file(golden_folder(golden) / "config.json");
  nlohmann::json config = nlohmann::json::parse(file);
  constexpr int64_t kHeads = 16;
  // Where the width of a head is not said, it follows from the residual's; else both are odd.
  const bool says_head_dim = config.contains("head_dim");
  const bool keys_are_shared = config.value("num_key_value_heads", 0) != config.value("num_attention_heads", 0);
  set_any(config, {"num_attention_heads", "n_head"}, kHeads);
  set_any(config, {"num_key_value_heads"}, keys_are_shared ? kHeads / 2 : kHeads);
  set_any(config, {"head_dim"}, 12);
  set_any(config, {"hidden_size", "n_embd"}, !says_head_dim ? kHeads * 16 : in_eights ? 64 : 60);
  set_any(config, {"intermediate_size", "n_inner"}, 104);
  set_any(config, {"moe_intermediate_size"}, 40);
  if (layers > 0) set_any(config, {"num_hidden_layers"}, layers);
  // In some, ranks have equal parts of the vocabulary, so that they exchange the best of each.
  if (says_head_dim) set_any(config, {"vocab_size"}, (config["vocab_size"].get<int64_t>() + 7) / 8 * 8);
  std::ofstream(folder / "config.json") << config;
}

}  // namespace nodewright::test
