#include "models/adapters/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "base/file_to_read.h"
#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/config/name_pattern.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestAdapterConfig = 1 << 20;  // bytes
constexpr int64_t kLargestRank = 1 << 16;
constexpr double kLargestAlpha = 1e6;
constexpr const char* kDoingAdapter = "read the adapter";

[[noreturn]] void refuse_adapter(const std::filesystem::path& path, std::string detail, std::string advice = {}) {
  throw Error(
      {.doing = kDoingAdapter, .object = path.string(), .detail = std::move(detail), .advice = std::move(advice)});
}

std::regex compiled(const std::filesystem::path& path, const std::string& key, const std::string& pattern) {
  return name_pattern(kDoingAdapter, path, key, pattern);
}

// A list of texts, or null or absent: none. `of_text`: told of one text instead of a list.
template <class OfText>
std::vector<std::string> texts(const ConfigFields& fields, const std::string& key, const OfText& of_text) {
  std::vector<std::string> list;
  const json* value = fields.find(key);
  if (value == nullptr) return list;
  if (value->is_string()) {
    of_text(value->get<std::string>());
    return list;
  }
  const bool are_texts = value->is_array() && std::ranges::all_of(*value, [](const json& v) { return v.is_string(); });
  if (!are_texts)
    fields.refuse(fmt::format("{} is {}, expected text or a list of texts", key, in_quotes(value->dump())));
  for (const json& one : *value) list.push_back(one.get<std::string>());
  return list;
}

// Neither null, false nor empty.
bool is_set(const json& value) {
  if (value.is_null() || value == json(false)) return false;
  return !((value.is_array() || value.is_object() || value.is_string()) && value.empty());
}

// Keys that change what is computed, and are refused where they are set.
constexpr const char* kOtherMethods[] = {
    "use_dora",        "lora_bias",   "modules_to_save",   "trainable_token_indices", "alora_invocation_tokens",
    "use_qalora",      "use_bdlora",  "layer_replication", "target_parameters",       "arrow_config",
    "megatron_config", "kasa_config", "velora_config",     "monteclora_config"};

// Ways to begin the training of an adapter at which PEFT takes the beginning from the weights, also where it loads the
// adapter later: it belongs to other weights than the checkpoint's.
constexpr std::string_view kChangingBeginnings[] = {"pissa", "olora", "corda"};

void refuse_changed_weights(const ConfigFields& fields) {
  const json* value = fields.find("init_lora_weights");
  if (value == nullptr || !value->is_string()) return;
  const std::string name = value->get<std::string>();
  if (std::ranges::any_of(kChangingBeginnings, [&](std::string_view word) { return name.starts_with(word); }))
    fields.refuse(fmt::format("init_lora_weights is {}, and such an adapter belongs to weights that PEFT changes",
                              in_quotes(name)),
                  "save it as PEFT converts it, with path_initial_model_for_weight_conversion");
}

void refuse_other_methods(const ConfigFields& fields) {
  const std::string type = fields.text("peft_type", "LORA");
  if (type != "LORA") fields.refuse(fmt::format("peft_type is {}, expected LORA", in_quotes(type)));
  for (const char* key : kOtherMethods)
    if (const json* value = fields.find(key); value != nullptr && is_set(*value))
      fields.refuse(fmt::format("{} is {}, which is not supported", key, in_quotes(value->dump())));
  if (const std::string bias = fields.text("bias", "none"); bias != "none")
    fields.refuse(fmt::format("bias is {}, expected none", in_quotes(bias)));
  refuse_changed_weights(fields);
}

template <class Read>
std::vector<std::pair<std::regex, double>> patterns_of(const ConfigFields& fields, const std::string& key,
                                                       const Read& read) {
  std::vector<std::pair<std::regex, double>> patterns;
  const json* object = fields.object(key);
  if (object == nullptr) return patterns;
  const ConfigFields inside = fields.inside(*object, key + ".");
  for (const auto& [pattern, value] : object->items())
    patterns.emplace_back(compiled(fields.path(), key, "(.*\\.)?(" + pattern + ")"), read(inside, pattern));
  return patterns;
}

std::vector<int64_t> layers_of(const ConfigFields& fields) {
  const json* value = fields.find("layers_to_transform");
  if (value == nullptr) return {};
  const bool are_layers =
      value->is_array() && std::ranges::all_of(*value, [](const json& v) { return v.is_number_unsigned(); });
  if (!are_layers && !value->is_number_unsigned())
    fields.refuse(fmt::format("layers_to_transform is {}, expected the number of a layer or a list of such numbers",
                              in_quotes(value->dump())));
  return fields.token_ids("layers_to_transform");
}

}  // namespace

AdapterConfig AdapterConfig::read(const std::filesystem::path& folder) {
  AdapterConfig c;
  std::error_code unused;
  if (!std::filesystem::is_directory(folder, unused))
    refuse_adapter(folder,
                   is_present(folder) ? "it is a file, not the folder of an adapter" : "there is no such folder",
                   "the folder that PEFT has written: adapter_config.json and adapter_model.safetensors");
  c.path_ = folder / "adapter_config.json";
  const json object = read_json_object(c.path_, kDoingAdapter, kLargestAdapterConfig);
  const ConfigFields fields(object, c.path_.string(), kDoingAdapter);
  refuse_other_methods(fields);
  c.rank_ = fields.integer("r", 8, 1, kLargestRank);
  c.alpha_ = fields.number("lora_alpha", 8, -kLargestAlpha, kLargestAlpha, false);
  c.root_ = fields.boolean("use_rslora", false);
  fields.boolean("fan_in_fan_out", false);  // how the base's matrix is stored: A and B are the same either way
  c.targets_ = texts(fields, "target_modules", [&](const std::string& text) {
    c.all_linear_ = text == "all-linear";
    if (!c.all_linear_) c.target_ = compiled(c.path_, "target_modules", text);
  });
  if (c.targets_.empty() && !c.target_ && !c.all_linear_) fields.refuse("target_modules is missing or empty");
  c.excluded_ = texts(fields, "exclude_modules",
                      [&](const std::string& text) { c.excluding_ = compiled(c.path_, "exclude_modules", text); });
  for (auto& [name, value] : patterns_of(fields, "rank_pattern", [](const ConfigFields&in, const std::string&key) {
         return static_cast<double>(in.integer(key, 0, 1, kLargestRank));
       }))
    c.ranks_.push_back({std::move(name), value});
  for (auto& [name, value] : patterns_of(fields, "alpha_pattern", [](const ConfigFields&in, const std::string&key) {
         return in.number(key, 0, -kLargestAlpha, kLargestAlpha, false);
       }))
    c.alphas_.push_back({std::move(name), value});
  c.layers_ = layers_of(fields);
  if (c.layers_.empty()) return c;
  std::string layers = "[^.]*";
  const std::vector<std::string> names =
      texts(fields, "layers_pattern", [&](const std::string& text) { layers = text; });
  for (const std::string& name : names) layers = (&name == names.data() ? "" : layers + "|") + name;
  c.layer_number_ = compiled(c.path_, "layers_pattern", ".*\\.(?:" + layers + ")\\.([0-9]+)\\..*");
  return c;
}

// PEFT takes the first pattern of the file that matches, and this has not kept their order: two that disagree are
// refused.
double AdapterConfig::of_pattern(const char* key, const std::vector<Pattern>& patterns, std::string_view module,
                                 double otherwise) const {
  std::optional<double> found;
  for (const Pattern& pattern : patterns) {
    if (!std::regex_match(module.begin(), module.end(), pattern.name)) continue;
    if (found && *found != pattern.value)
      refuse_adapter(path_, fmt::format("{} gives {} both {} and {}", key, in_quotes(module), *found, pattern.value));
    found = pattern.value;
  }
  return found.value_or(otherwise);
}

int64_t AdapterConfig::rank_of(std::string_view module) const {
  return static_cast<int64_t>(of_pattern("rank_pattern", ranks_, module, static_cast<double>(rank_)));
}

double AdapterConfig::scale_of(std::string_view module) const {
  const auto rank = static_cast<double>(rank_of(module));
  return of_pattern("alpha_pattern", alphas_, module, alpha_) / (root_ ? std::sqrt(rank) : rank);
}

// As check_target_module_exists of peft/tuners/tuners_utils.py (0.21).
bool AdapterConfig::targets(std::string_view module) const {
  const auto names = [&](const std::vector<std::string>& list) {
    return std::ranges::any_of(list,
                               [&](const std::string& one) { return module == one || module.ends_with("." + one); });
  };
  if (names(excluded_) || (excluding_ && std::regex_match(module.begin(), module.end(), *excluding_))) return false;
  if (all_linear_) return is_of_layers(module);
  if (target_) return std::regex_match(module.begin(), module.end(), *target_);
  return names(targets_) && is_of_layers(module);
}

bool AdapterConfig::is_of_layers(std::string_view module) const {
  if (layers_.empty()) return true;
  std::cmatch match;
  if (!std::regex_match(module.data(), module.data() + module.size(), match, *layer_number_)) return false;
  int64_t layer = -1;
  std::from_chars(match[1].first, match[1].second, layer);
  return std::ranges::count(layers_, layer) > 0;
}

}  // namespace nodewright
