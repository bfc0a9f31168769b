#include "models/model_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/json_file.h"
#include "models/rope_frequencies.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr std::string_view kArchitectures = "LlamaForCausalLM";  // supported, joined by commas
constexpr uint64_t kLargestConfig = 16 << 20;                    // bytes; released files have under 10 000
// Largest sizes believed, each several times that of any released model; products of three stay below 2^63.
constexpr int64_t kMostLayers = 1 << 12;
constexpr int64_t kMostHeads = 1 << 12;
constexpr int64_t kMostHeadDim = 1 << 12;
constexpr int64_t kWidest = 1 << 20;  // hidden, intermediate
constexpr int64_t kMostTokens = 1 << 24;
constexpr int64_t kLongestContext = int64_t{1} << 31;

// One JSON object of a file. Every question names the key, and every refusal the file.
class Fields {
 public:
  Fields(const json& object, std::string path, std::string prefix = {})
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  // Null counts as absent, as it does for transformers' optional fields.
  const json* find(const std::string& key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t integer(const std::string& key, int64_t absent, int64_t least, int64_t most) const {
    const json* value = find(key);
    return value ? integer_in(*value, key, least, most) : absent;
  }

  int64_t integer_in(const json& value, const std::string& key, int64_t least, int64_t most) const {
    if (!value.is_number_integer()) wrong_type(key, value, "an integer");
    const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
    if (beyond || value.get<int64_t>() < least || value.get<int64_t>() > most)
      refuse(fmt::format("{}{} is {}, expected {} to {}", prefix_, key, value.dump(), least, most));
    return value.get<int64_t>();
  }

  // A finite number, integers included; `least` is excluded when `open`.
  double number(const std::string& key, double absent, double least, double most, bool open) const {
    const json* value = find(key);
    if (!value) return absent;
    if (!value->is_number()) wrong_type(key, *value, "a number");
    const double number = value->get<double>();
    if (!std::isfinite(number) || number < least || number > most || (open && number == least))
      refuse(fmt::format("{}{} is {}, expected {} {} and at most {}", prefix_, key, value->dump(),
                         open ? "above" : "at least", least, most));
    return number;
  }

  bool boolean(const std::string& key, bool absent) const {
    const json* value = find(key);
    if (!value) return absent;
    if (!value->is_boolean()) wrong_type(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string text(const std::string& key, std::string absent) const {
    const json* value = find(key);
    if (!value) return absent;
    if (!value->is_string()) wrong_type(key, *value, "text");
    return value->get<std::string>();
  }

  // An object under `key`, or null if absent or empty.
  const json* object(const std::string& key) const {
    const json* value = find(key);
    if (!value) return nullptr;
    if (!value->is_object()) wrong_type(key, *value, "an object");
    return value->empty() ? nullptr : value;
  }

  // One integer or a list of them; -1, which some files write for "none", gives none.
  std::vector<int64_t> token_ids(const std::string& key) const {
    std::vector<int64_t> ids;
    const json* value = find(key);
    if (!value) return ids;
    if (!value->is_array() && !value->is_number_integer()) wrong_type(key, *value, "an integer or a list of integers");
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      const int64_t token = integer_in(id, key, -1, kMostTokens);
      if (token >= 0) ids.push_back(token);
    }
    return ids;
  }

  std::optional<int64_t> token_id(const std::string& key, std::optional<int64_t> absent) const {
    if (!object_.contains(key)) return absent;
    const std::vector<int64_t> ids = token_ids(key);
    if (ids.size() > 1) refuse(fmt::format("{}{} has {} token ids, expected one", prefix_, key, ids.size()));
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  }

  bool has(const std::string& key) const { return object_.contains(key); }
  const std::string& path() const { return path_; }

  [[noreturn]] void refuse(std::string detail, std::string advice = {}) const {
    throw Error({.doing = "read the model configuration",
                 .object = path_,
                 .detail = std::move(detail),
                 .advice = std::move(advice)});
  }

 private:
  [[noreturn]] void wrong_type(const std::string& key, const json& value, std::string_view expected) const {
    refuse(fmt::format("{}{} is {}, expected {}", prefix_, key, in_quotes(value.dump()), expected));
  }

  const json& object_;
  std::string path_;
  std::string prefix_;  // "rope_scaling." for a nested object
};

std::string read_architecture(const Fields& config) {
  const json* list = config.find("architectures");
  const std::string advice = fmt::format("supported architectures: {}", kArchitectures);
  if (!list) config.refuse("architectures is missing", advice);
  if (!list->is_array() || list->size() != 1 || !list->front().is_string())
    config.refuse(fmt::format("architectures is {}, expected a list of one name", in_quotes(list->dump())), advice);
  std::string name = list->front().get<std::string>();
  if (name != kArchitectures) config.refuse(fmt::format("architecture {} is not supported", in_quotes(name)), advice);
  return name;
}

// What would change the arithmetic, and is not implemented.
void refuse_unsupported(const Fields& config) {
  if (config.find("quantization_config"))
    config.refuse("quantization_config: quantized weights are not supported", "use the unquantized checkpoint");
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (config.boolean(bias, false)) config.refuse(fmt::format("{} is true, biases are not supported", bias));
  const std::string activation = config.text("hidden_act", "silu");
  if (activation != "silu")
    config.refuse(fmt::format("hidden_act is {}, only 'silu' is supported", in_quotes(activation)));
}

double required(const Fields& rope, const std::string& key, const std::string& type) {
  if (!rope.find(key)) rope.refuse(fmt::format("rope type '{}' needs {}, which is missing", type, key));
  return rope.number(key, 0, 0, 1e9, true);
}

// transformers: rope_scaling, if it is there and not empty, else rope_parameters; a rope_theta inside it comes before
// the one beside it (modeling_rope_utils.py, convert_rope_params_to_dict).
RopeConfig read_rope(const Fields& config, int64_t max_position) {
  const bool old_spelling = config.object("rope_scaling") != nullptr;
  const std::string name = old_spelling ? "rope_scaling" : "rope_parameters";
  const json none = json::object();
  const json* object = config.object(name);
  const Fields rope(object ? *object : none, config.path(), name + ".");

  RopeConfig result;
  result.theta = rope.number("rope_theta", config.number("rope_theta", 10000.0, 0, 1e15, true), 0, 1e15, true);
  const double partial =
      rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1, 0, 1, true), 0, 1, true);
  if (partial != 1) config.refuse(fmt::format("partial_rotary_factor is {}, only 1 is supported", partial));

  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return result;
  if (type != "linear" && type != "llama3")
    config.refuse(fmt::format("{}.rope_type is {}", name, in_quotes(type)), "supported types: default, linear, llama3");
  result.type = type == "linear" ? RopeType::linear : RopeType::llama3;
  result.factor = required(rope, "factor", type);
  if (type == "linear") return result;
  result.low = required(rope, "low_freq_factor", type);
  result.high = required(rope, "high_freq_factor", type);
  if (result.high <= result.low)
    config.refuse(fmt::format("{0}.high_freq_factor is {1}, expected more than {0}.low_freq_factor, {2}", name,
                              result.high, result.low));
  const std::string original = "original_max_position_embeddings";
  result.original =
      config.integer(original, rope.integer(original, max_position, 1, kLongestContext), 1, kLongestContext);
  return result;
}

void check_relations(const Fields& config, const ModelConfig& c) {
  if (c.heads % c.kv_heads != 0)
    config.refuse(
        fmt::format("num_attention_heads is {}, expected a multiple of num_key_value_heads, {}", c.heads, c.kv_heads));
  if (c.head_dim % 2 != 0)
    config.refuse(fmt::format("head_dim is {}, expected an even number: rotary embedding turns pairs", c.head_dim));
  if (c.bos && *c.bos >= c.vocab)
    config.refuse(fmt::format("bos_token_id is {}, expected less than vocab_size, {}", *c.bos, c.vocab));
  for (const float frequency : rope_frequencies(c))  // numbers that are fine one by one may overflow together
    if (!std::isfinite(frequency))
      config.refuse(fmt::format("rope_theta, {}, and the other rotary parameters give the frequency {}", c.rope.theta,
                                frequency));
}

void read_sizes(const Fields& config, ModelConfig& c) {
  c.hidden = config.integer("hidden_size", 4096, 1, kWidest);
  c.layers = config.integer("num_hidden_layers", 32, 1, kMostLayers);
  c.heads = config.integer("num_attention_heads", 32, 1, kMostHeads);
  c.kv_heads = config.integer("num_key_value_heads", c.heads, 1, kMostHeads);
  if (!config.find("head_dim") && c.hidden % c.heads != 0)
    config.refuse(fmt::format(
        "hidden_size is {}, expected a multiple of num_attention_heads, {}, as head_dim is absent", c.hidden, c.heads));
  c.head_dim = config.integer("head_dim", c.hidden / c.heads, 1, kMostHeadDim);
  c.intermediate = config.integer("intermediate_size", 11008, 1, kWidest);
  c.vocab = config.integer("vocab_size", 32000, 1, kMostTokens);
  c.max_position = config.integer("max_position_embeddings", 2048, 1, kLongestContext);
}

// generation_config.json says what generate() does; its eos_token_id replaces the one of config.json.
void read_generation(const std::filesystem::path& path, ModelConfig& c) {
  std::error_code unused;
  if (!std::filesystem::exists(path, unused)) return;
  const json object = read_json_object(path, "read the generation defaults", kLargestConfig);
  const Fields fields(object, path.string());
  if (fields.has("eos_token_id")) c.eos = fields.token_ids("eos_token_id");
  GenerationDefaults& g = c.generation;
  if (fields.find("do_sample")) g.sample = fields.boolean("do_sample", false);
  if (fields.find("temperature")) g.temperature = fields.number("temperature", 1, 0, 1e6, false);
  if (fields.find("top_k")) g.top_k = fields.integer("top_k", 0, 0, kMostTokens);
  if (fields.find("top_p")) g.top_p = fields.number("top_p", 1, 0, 1, false);
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const json object = read_json_object(path, "read the model configuration", kLargestConfig);
  const Fields config(object, path.string());

  ModelConfig c;
  c.architecture = read_architecture(config);
  refuse_unsupported(config);
  read_sizes(config, c);
  c.eps = static_cast<float>(config.number("rms_norm_eps", 1e-6, 0, 1, false));
  c.tied = config.boolean("tie_word_embeddings", false);
  c.rope = read_rope(config, c.max_position);
  c.bos = config.token_id("bos_token_id", 1);
  c.pad = config.token_id("pad_token_id", std::nullopt);
  c.eos = config.has("eos_token_id") ? config.token_ids("eos_token_id") : std::vector<int64_t>{2};
  c.dtype = config.text("dtype", config.text("torch_dtype", ""));
  check_relations(config, c);
  read_generation(folder / "generation_config.json", c);
  return c;
}

}  // namespace nodewright
