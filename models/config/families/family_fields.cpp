#include "models/config/families/family_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"

namespace nodewright {

using nlohmann::json;

void read_sizes(const ConfigFields& config, const Defaults& absent, ModelConfig& c) {
  c.hidden = config.integer("hidden_size", absent.hidden, 1, kWidest);
  c.layers = config.integer("num_hidden_layers", absent.layers, 1, kMostLayers);
  c.heads = config.integer("num_attention_heads", absent.heads, 1, kMostHeads);
  const bool as_heads = absent.kv_heads == 0 || config.has("num_key_value_heads");  // null: as many
  c.kv_heads = config.integer("num_key_value_heads", as_heads ? c.heads : absent.kv_heads, 1, kMostHeads);
  if (!config.find("head_dim") && absent.head_dim == 0 && c.hidden % c.heads != 0)
    config.refuse(fmt::format(
        "hidden_size is {}, expected a multiple of num_attention_heads, {}, as head_dim is absent", c.hidden, c.heads));
  c.head_dim = config.integer("head_dim", absent.head_dim == 0 ? c.hidden / c.heads : absent.head_dim, 1, kMostHeadDim);
  c.intermediate = config.integer("intermediate_size", absent.intermediate, 1, kWidest);
  c.vocab = config.integer("vocab_size", absent.vocab, 1, kMostTokens);
  c.max_position = config.integer("max_position_embeddings", absent.max_position, 1, kLongestContext);
  c.eps = static_cast<float>(config.number(absent.eps_key, absent.eps, 0, 1, false));
}

void read_tokens(const ConfigFields& config, const Defaults& absent, ModelConfig& c) {
  c.tied = config.boolean("tie_word_embeddings", absent.tied);
  c.bos = config.token_id("bos_token_id", absent.bos);
  c.pad = config.token_id("pad_token_id", absent.pad);
  if (config.has("eos_token_id"))
    c.eos = config.token_ids("eos_token_id");
  else if (absent.eos)
    c.eos = {*absent.eos}, c.eos_assumed = true;
}

// Keys that change the arithmetic in a way that is not implemented, when they are true.
void refuse_true(const ConfigFields& config, std::initializer_list<const char*> keys, std::string_view why) {
  for (const char* key : keys)
    if (config.boolean(key, false)) config.fault(fmt::format("{} is true, {}", key, why));
}

void expect_activation(const ConfigFields& config, const std::string& key, const std::string& supported) {
  const std::string activation = config.text(key, supported);
  if (activation != supported)
    config.fault(fmt::format("{} is {}, only '{}' is supported", key, in_quotes(activation), supported));
}

void read_llama_like(const ConfigFields& config, const Defaults& absent, ModelConfig& c) {
  read_sizes(config, absent, c);
  read_tokens(config, absent, c);
  read_rope(config, absent, c);
}

Activation read_gelu(const ConfigFields& config, const std::string& key, const std::string& absent) {
  const std::string name = config.text(key, absent);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  config.fault(fmt::format("{} is {}", key, in_quotes(name)),
               "supported: gelu_new, gelu_fast, gelu_pytorch_tanh, gelu");
  return Activation::gelu_tanh;
}

std::optional<std::vector<bool>> read_layer_types(const ConfigFields& config, int64_t layers) {
  const json* types = config.find("layer_types");
  if (!types) return std::nullopt;
  std::vector<bool> sliding;
  if (!types->is_array() || types->size() != static_cast<size_t>(layers))
    config.refuse(fmt::format("layer_types is {}, expected a list of num_hidden_layers names, {}",
                              in_quotes(types->dump()), layers));
  for (const json& type : *types) {
    if (type != kSlidingLayer && type != kGlobalLayer)
      config.refuse(fmt::format("layer_types holds {}", in_quotes(type.dump())),
                    fmt::format("supported types: {}, {}", kSlidingLayer, kGlobalLayer));
    sliding.push_back(type == kSlidingLayer);
  }
  return sliding;
}

void read_window_of_all(const ConfigFields& config, std::optional<int64_t> absent, ModelConfig& c) {
  if (config.has("sliding_window") ? config.find("sliding_window") == nullptr : !absent) return;
  c.window = config.integer("sliding_window", absent.value_or(1), 1, kLongestContext);
  if (c.window >= c.longest_context())
    c.window = 0;
  else
    c.sliding.assign(static_cast<size_t>(c.layers), true);
}

}  // namespace nodewright
