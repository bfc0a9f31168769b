// Rotary parameters of config.json, in both spellings: rope_theta beside rope_scaling, and rope_parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/families/family_fields.h"

namespace nodewright {
namespace {

using nlohmann::json;

double required(const ConfigFields& rope, const std::string& key, const std::string& type) {
  if (!rope.find(key)) rope.refuse(fmt::format("rope type '{}' needs {}, which is missing", type, key));
  return rope.number(key, 0, 0, 1e9, true);
}

RopeType type_of(const ConfigFields& rope) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  constexpr std::pair<std::string_view, RopeType> kTypes[] = {
      {"default", RopeType::plain}, {"dynamic", RopeType::dynamic}, {"linear", RopeType::linear},
      {"llama3", RopeType::llama3}, {"yarn", RopeType::yarn},       {"longrope", RopeType::longrope},
      {"su", RopeType::longrope}};  // Phi-3's first name of it
  for (const auto& [name, found] : kTypes)
    if (name == type) return found;
  rope.fault(fmt::format("{}rope_type is {}", rope.prefix(), in_quotes(type)),
             "supported types: default, linear, dynamic, llama3, yarn, longrope");
  return RopeType::plain;
}

void read_llama3(const ConfigFields& rope, RopeConfig& result) {
  result.low = required(rope, "low_freq_factor", "llama3");
  result.high = required(rope, "high_freq_factor", "llama3");
  if (result.high <= result.low)
    rope.refuse(fmt::format("{0}high_freq_factor is {1}, expected more than {0}low_freq_factor, {2}", rope.prefix(),
                            result.high, result.low));
}

// The attention factor: what a longer context does to the sum of a query's weights (arXiv 2309.00071, 3.4).
double magnitude(double scale, double weight) { return scale <= 1 ? 1 : 0.1 * weight * std::log(scale) + 1; }

void read_yarn(const ConfigFields& rope, RopeConfig& result) {
  const double weight = rope.number("mscale", 0, 0, 1e9, false), all = rope.number("mscale_all_dim", 0, 0, 1e9, false);
  const double inferred = weight != 0 && all != 0 ? magnitude(result.factor, weight) / magnitude(result.factor, all)
                                                  : magnitude(result.factor, 1);
  result.amplitude = rope.number("attention_factor", inferred, 0, 1e9, true);
  result.beta_fast = rope.number("beta_fast", 32, 0, 1e9, true);
  result.beta_slow = rope.number("beta_slow", 1, 0, 1e9, true);
  result.truncate = rope.boolean("truncate", true);
}

std::vector<double> factors_of(const ConfigFields& rope, const char* key, int64_t pairs) {
  const json* list = rope.find(key);
  if (!list) rope.refuse(fmt::format("rope type 'longrope' needs {}, which is missing", key));
  if (!list->is_array() || list->size() != static_cast<size_t>(pairs))
    rope.refuse(fmt::format("{}{} is {}, expected a list of {} numbers, one for each pair", rope.prefix(), key,
                            in_quotes(list->dump()), pairs));
  std::vector<double> factors;
  for (const json& factor : *list) {
    if (!factor.is_number() || !(factor.get<double>() > 0))
      rope.refuse(fmt::format("{}{} holds {}, expected numbers above 0", rope.prefix(), key, in_quotes(factor.dump())));
    factors.push_back(factor.get<double>());
  }
  return factors;
}

void read_longrope(const ConfigFields& rope, const ModelConfig& c, RopeConfig& result) {
  result.short_factors = factors_of(rope, "short_factor", c.rotated() / 2);
  result.long_factors = factors_of(rope, "long_factor", c.rotated() / 2);
  const auto original = static_cast<double>(result.original);
  const double factor = rope.number("factor", static_cast<double>(c.max_position) / original, 0, 1e9, true);
  result.factor = factor;
  const double inferred = factor <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  result.amplitude = rope.number("attention_factor", inferred, 0, 1e9, true);
}

// The first elements of a head, which turn.
int64_t read_rotary_dim(const ConfigFields& config, const ConfigFields& rope, double absent, const ModelConfig& c) {
  const char* kKey = "partial_rotary_factor";
  const double of_neox = config.number("rotary_pct", absent, 0, 1, true);
  const double part = rope.number(kKey, config.number(kKey, of_neox, 0, 1, true), 0, 1, true);
  const auto turned = static_cast<int64_t>(static_cast<double>(c.head_dim) * part);
  if (turned == c.head_dim) return 0;
  if (turned < 2 || turned % 2 != 0)
    config.refuse(
        fmt::format("{} is {}: {} of head_dim, {}, turn, expected an even number", kKey, part, turned, c.head_dim));
  return turned;
}

// The context that scaling makes: `factor` times the original one. Where frequencies are the same for every context
// that is what the model is for; where they are not, max_position_embeddings stays what is taken unless more is asked
// for. As in vLLM, which leaves llama3 and longrope alone: there max_position_embeddings of released files is the
// scaled number (Llama-3.2's is half of what its factor would give), unless it is no more than the original one.
void scale_context(ModelConfig& c) {
  if (c.rope.type == RopeType::plain || c.rope.factor <= 1) return;
  const bool says_scaled = c.rope.type == RopeType::llama3 || c.rope.type == RopeType::longrope;
  if (says_scaled && c.max_position > c.rope.original) return;
  const double scaled =
      std::min(static_cast<double>(c.rope.original) * c.rope.factor, static_cast<double>(kLongestContext));
  const bool is_one_table = c.rope.type != RopeType::dynamic && c.rope.type != RopeType::longrope;
  int64_t& context = is_one_table ? c.max_position : c.scaled_position;
  context = std::max(context, static_cast<int64_t>(scaled));
}

}  // namespace

RopeConfig read_rope(const ConfigFields& config, const ConfigFields& rope, double theta, const ModelConfig& c) {
  RopeConfig result;
  result.theta = rope.number("rope_theta", theta, 0, 1e15, true);
  result.type = type_of(rope);
  if (result.type == RopeType::plain) return result;
  const std::string original = "original_max_position_embeddings";
  result.original =
      config.integer(original, rope.integer(original, c.max_position, 1, kLongestContext), 1, kLongestContext);
  if (result.type == RopeType::dynamic) result.original = c.max_position;  // transformers reads no other
  if (result.type == RopeType::longrope) {
    read_longrope(rope, c, result);
    return result;
  }
  if (result.type == RopeType::dynamic && !rope.find("factor")) return result;  // plain, whatever the context
  result.factor = required(rope, "factor", rope.text("rope_type", rope.text("type", "")));
  if (result.type == RopeType::llama3) read_llama3(rope, result);
  if (result.type == RopeType::yarn) read_yarn(rope, result);
  return result;
}

void read_rope(const ConfigFields& config, const Defaults& absent, ModelConfig& c) {
  const std::string name = config.object("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const json none = json::object();
  const json* object = config.object(name);
  const ConfigFields rope = config.inside(object ? *object : none, name + ".");
  for (const auto& [key, value] : rope.object().items())
    if (value.is_object())
      config.refuse(fmt::format("{}.{} is an object, expected one set of parameters for all layers", name, key));
  c.rotary_dim = read_rotary_dim(config, rope, absent.rotary_part, c);
  const double of_neox = config.number("rotary_emb_base", absent.theta, 0, 1e15, true);
  c.rope = read_rope(config, rope, config.number("rope_theta", of_neox, 0, 1e15, true), c);
  scale_context(c);
}

}  // namespace nodewright
