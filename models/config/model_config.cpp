#include "models/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_file.h"
#include "kernels_src/sampling/shape_logits.h"
#include "models/config/architectures.h"
#include "models/config/config_fields.h"
#include "models/config/gguf_config.h"
#include "models/config/rope_frequencies.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestConfig = 16 << 20;  // bytes; released files have under 10 000
constexpr const char* kGenerationFile = "generation_config.json";

// Keys that change the arithmetic in a way that is not implemented, when they have a value at all.
void refuse_set(const ConfigFields& config, std::initializer_list<const char*> keys, std::string_view why) {
  for (const char* key : keys)
    if (const json* value = config.find(key))
      config.fault(fmt::format("{} is {}, {}", key, in_quotes(value->dump()), why));
}

// What else is asked for often enough to deserve a reason.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"Qwen2MoeForCausalLM", "shared experts are not supported"},
    {"DeepseekV3ForCausalLM", "shared experts and latent attention are not supported"},
    {"LlavaForConditionalGeneration", "vision towers are not supported"}};

const Architecture& read_architecture(const ConfigFields& config) {
  std::string supported = "supported architectures: ";
  for (const Architecture& a : architectures())
    supported += (&a == &architectures().front() ? "" : ", ") + std::string(a.name);
  const json* list = config.find("architectures");
  if (!list) config.refuse("architectures is missing", supported);
  if (!list->is_array() || list->size() != 1 || !list->front().is_string())
    config.refuse(fmt::format("architectures is {}, expected a list of one name", in_quotes(list->dump())), supported);
  const std::string name = list->front().get<std::string>();
  for (const Architecture& a : architectures())
    if (a.name == name) return a;
  for (const auto& [other, reason] : kReasons)
    if (other == name)
      config.refuse(fmt::format("architecture {} is not supported: {}", in_quotes(name), reason), supported);
  config.refuse(fmt::format("architecture {} is not supported", in_quotes(name)), supported);
}

// An end that no step can choose would end no text, and nothing need be kept from choosing it. `vocab` 0: not known.
void check_tokens(const ConfigFields& fields, const char* key, const std::vector<int64_t>& tokens, int64_t vocab) {
  for (const int64_t token : tokens)
    if (vocab > 0 && token >= vocab)
      fields.fault(fmt::format("{} has {}, expected less than vocab_size, {}", key, token, vocab),
                   "correct the file: the vocabulary has no such token");
}

void check_denied(const ConfigFields& fields, const GenerationDefaults& defaults, int64_t vocab) {
  check_tokens(fields, "suppress_tokens", defaults.suppress_tokens, vocab);
  for (const std::vector<int64_t>& word : defaults.bad_words_ids) check_tokens(fields, "bad_words_ids", word, vocab);
  const size_t tokens = defaults.suppress_tokens.size(), words = defaults.bad_words_ids.size();
  if (tokens + words > static_cast<size_t>(kMostBiases))
    fields.fault(fmt::format("suppress_tokens has {} tokens and bad_words_ids {} words, expected {} together at most",
                             tokens, words, kMostBiases));
}

void check_relations(const ConfigFields& config, const ModelConfig& c) {
  if (c.names.experts.empty())
    refuse_set(config, {"num_experts", "num_local_experts"}, "this architecture is no mixture of experts");
  if (c.heads % c.kv_heads != 0)
    config.refuse(
        fmt::format("num_attention_heads is {}, expected a multiple of num_key_value_heads, {}", c.heads, c.kv_heads));
  if (c.head_dim % 2 != 0)
    config.refuse(fmt::format("head_dim is {}, expected an even number: rotary embedding turns pairs", c.head_dim));
  if (c.bos && *c.bos >= c.vocab)
    config.refuse(fmt::format("bos_token_id is {}, expected less than vocab_size, {}", *c.bos, c.vocab));
  if (!c.eos_assumed) check_tokens(config, "eos_token_id", c.eos, c.vocab);
  for (const RopeConfig& rope : {c.rope, c.local_rope.value_or(c.rope)})
    for (const float frequency :
         rope_frequencies(rope, c.rotated(), c.max_position))  // fine one by one, they may overflow together
      if (!std::isfinite(frequency))
        config.refuse(fmt::format("rope_theta, {}, and the other rotary parameters give the frequency {}", rope.theta,
                                  frequency));
}

// `faults`: of values that are wrong by themselves, or null to throw the first.
ModelConfig read_config(const std::filesystem::path& folder, std::vector<Error>* faults) {
  const std::optional<GgufModel> gguf = is_gguf(folder) ? std::optional(GgufModel::open(folder)) : std::nullopt;
  const std::filesystem::path path = gguf ? folder : folder / "config.json";
  const json object =
      gguf ? gguf_config(*gguf) : read_json_object(path, "read the model configuration", kLargestConfig);
  const ConfigFields config(object, path.string(), "read the model configuration", faults);

  const Architecture& architecture = read_architecture(config);
  ModelConfig c;
  c.architecture = architecture.name;
  c.names = llama_names();
  architecture.read(config, c);
  c.dtype = config.text("dtype", config.text("torch_dtype", ""));
  check_relations(config, c);
  if (gguf) apply_gguf(*gguf, c);
  return c;
}

// Which tokens end a text by generation_config.json come first; null and an empty list there take away none.
void add_ends(const std::vector<int64_t>& ends, ModelConfig& c) {
  if (ends.empty()) return;
  std::vector<int64_t> others;
  if (!c.eos_assumed) std::swap(others, c.eos);
  c.eos.clear();
  c.eos_assumed = false;
  std::unordered_set<int64_t> known;
  for (const std::vector<int64_t>* all : {&ends, static_cast<const std::vector<int64_t>*>(&others)})
    for (const int64_t end : *all)
      if (known.insert(end).second) c.eos.push_back(end);
}

// generation_config.json says what generate() does.
void read_generation(const std::filesystem::path& path, std::vector<Error>* faults, ModelConfig& c) {
  if (!is_present(path)) return;
  const json object = read_json_object(path, "read the generation defaults", kLargestConfig);
  const ConfigFields fields(object, path.string(), "read the model configuration", faults);
  const std::vector<int64_t> ends = fields.token_ids("eos_token_id");
  check_tokens(fields, "eos_token_id", ends, c.vocab);
  add_ends(ends, c);
  c.generation = read_generation_defaults(fields);
  check_denied(fields, c.generation, c.vocab);
}

// What `read` refuses at its end may follow from a fault that it found before.
void add_faults(const std::function<void(std::vector<Error>*)>& read, std::vector<Error>& all) {
  std::vector<Error> faults;
  try {
    read(&faults);
  } catch (const Error& error) {
    if (faults.empty()) faults.push_back(error);
  }
  std::ranges::move(faults, std::back_inserter(all));
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& folder) {
  ModelConfig c = read_config(folder, nullptr);
  read_generation(folder / kGenerationFile, nullptr, c);
  return c;
}

std::vector<Error> model_config_faults(const std::filesystem::path& folder) {
  std::vector<Error> all;
  ModelConfig c;
  add_faults([&](std::vector<Error>* faults) { c = read_config(folder, faults); }, all);
  add_faults([&](std::vector<Error>* faults) { read_generation(folder / kGenerationFile, faults, c); }, all);
  return all;
}

}  // namespace nodewright
