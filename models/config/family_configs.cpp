// How config.json of each family is read: a function a family, with the defaults of its configuration class.
#include "models/config/family_configs.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_file.h"

namespace nodewright {
namespace {

using nlohmann::json;

// Largest sizes believed, each several times that of any released model; products of three stay below 2^63.
constexpr int64_t kMostLayers = 1 << 12;
constexpr int64_t kMostHeads = 1 << 12;
constexpr int64_t kMostHeadDim = 1 << 12;
constexpr int64_t kWidest = 1 << 20;  // hidden, intermediate
constexpr int64_t kLongestContext = int64_t{1} << 31;

// ---- What several families share ---------------------------------------------------------------------------------

// What a family's configuration class says where the file is silent.
struct Defaults {
  int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, max_position;  // 0: from the other sizes
  bool tied;
  std::optional<int64_t> bos, eos, pad;
};

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
  c.eps = static_cast<float>(config.number("rms_norm_eps", 1e-6, 0, 1, false));
}

void read_tokens(const ConfigFields& config, const Defaults& absent, ModelConfig& c) {
  c.tied = config.boolean("tie_word_embeddings", absent.tied);
  c.bos = config.token_id("bos_token_id", absent.bos);
  c.pad = config.token_id("pad_token_id", absent.pad);
  if (config.has("eos_token_id"))
    c.eos = config.token_ids("eos_token_id");
  else if (absent.eos)
    c.eos = {*absent.eos};
}

// Keys that change the arithmetic in a way that is not implemented, when they are true.
void refuse_true(const ConfigFields& config, std::initializer_list<const char*> keys, std::string_view why) {
  for (const char* key : keys)
    if (config.boolean(key, false)) config.refuse(fmt::format("{} is true, {}", key, why));
}

void expect_activation(const ConfigFields& config, const std::string& key, const std::string& supported) {
  const std::string activation = config.text(key, supported);
  if (activation != supported)
    config.refuse(fmt::format("{} is {}, only '{}' is supported", key, in_quotes(activation), supported));
}

// ---- Rotary embedding --------------------------------------------------------------------------------------------

double required(const ConfigFields& rope, const std::string& key, const std::string& type) {
  if (!rope.find(key)) rope.refuse(fmt::format("rope type '{}' needs {}, which is missing", type, key));
  return rope.number(key, 0, 0, 1e9, true);
}

// One set of parameters; `theta`: where they hold none.
RopeConfig read_rope(const ConfigFields& config, const ConfigFields& rope, double theta, int64_t max_position) {
  RopeConfig result;
  result.theta = rope.number("rope_theta", theta, 0, 1e15, true);
  const double partial =
      rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1, 0, 1, true), 0, 1, true);
  if (partial != 1) config.refuse(fmt::format("partial_rotary_factor is {}, only 1 is supported", partial));

  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return result;
  if (type != "linear" && type != "llama3")
    config.refuse(fmt::format("{}rope_type is {}", rope.prefix(), in_quotes(type)),
                  "supported types: default, linear, llama3");
  result.type = type == "linear" ? RopeType::linear : RopeType::llama3;
  result.factor = required(rope, "factor", type);
  if (type == "linear") return result;
  result.low = required(rope, "low_freq_factor", type);
  result.high = required(rope, "high_freq_factor", type);
  if (result.high <= result.low)
    config.refuse(fmt::format("{0}high_freq_factor is {1}, expected more than {0}low_freq_factor, {2}", rope.prefix(),
                              result.high, result.low));
  const std::string original = "original_max_position_embeddings";
  result.original =
      config.integer(original, rope.integer(original, max_position, 1, kLongestContext), 1, kLongestContext);
  return result;
}

// One table for all layers. transformers: rope_scaling, if it is there and not empty, else rope_parameters; a
// rope_theta inside it comes before the one beside it (modeling_rope_utils.py, convert_rope_params_to_dict).
RopeConfig read_rope(const ConfigFields& config, int64_t max_position) {
  const std::string name = config.object("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const json none = json::object();
  const json* object = config.object(name);
  const ConfigFields rope(object ? *object : none, config.path(), name + ".");
  for (const auto& [key, value] : rope.object().items())
    if (value.is_object())
      config.refuse(fmt::format("{}.{} is an object, expected one set of parameters for all layers", name, key));
  return read_rope(config, rope, config.number("rope_theta", 10000.0, 0, 1e15, true), max_position);
}

// ---- Layers with a window ------------------------------------------------------------------------------------------

constexpr const char* kSlidingLayer = "sliding_attention";
constexpr const char* kGlobalLayer = "full_attention";

// layer_types, if the file has it, else what `slides` says of each layer.
template <class Slides>
std::vector<bool> read_sliding(const ConfigFields& config, int64_t layers, Slides slides) {
  std::vector<bool> sliding;
  const json* types = config.find("layer_types");
  if (!types) {
    for (int64_t l = 0; l < layers; ++l) sliding.push_back(slides(l));
    return sliding;
  }
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

// ---- The families --------------------------------------------------------------------------------------------------

void read_llama(const ConfigFields& config, ModelConfig& c) {
  const Defaults absent{.hidden = 4096,
                        .layers = 32,
                        .heads = 32,
                        .kv_heads = 0,
                        .head_dim = 0,
                        .intermediate = 11008,
                        .vocab = 32000,
                        .max_position = 2048,
                        .tied = false,
                        .bos = 1,
                        .eos = 2,
                        .pad = {}};
  refuse_true(config, {"attention_bias", "mlp_bias"}, "biases are not supported");
  expect_activation(config, "hidden_act", "silu");
  read_sizes(config, absent, c);
  read_tokens(config, absent, c);
  c.rope = read_rope(config, c.max_position);
}

// A Llama whose query and key heads are normed. Where use_sliding_window asks for windows, the last layers have them.
void read_qwen3(const ConfigFields& config, ModelConfig& c) {
  const Defaults absent{.hidden = 4096,
                        .layers = 32,
                        .heads = 32,
                        .kv_heads = 32,
                        .head_dim = 128,
                        .intermediate = 22016,
                        .vocab = 151936,
                        .max_position = 32768,
                        .tied = false,
                        .bos = {},
                        .eos = {},
                        .pad = {}};
  c.family = Family::qwen3;
  c.head_norm = true;
  refuse_true(config, {"attention_bias"}, "biases are not supported");
  expect_activation(config, "hidden_act", "silu");
  read_sizes(config, absent, c);
  read_tokens(config, absent, c);
  c.rope = read_rope(config, c.max_position);
  const bool slides = config.boolean("use_sliding_window", false);
  const int64_t first = config.integer("max_window_layers", 28, 0, kMostLayers);
  c.window = slides ? config.integer("sliding_window", 4096, 1, kLongestContext) : 0;
  c.sliding = read_sliding(config, c.layers, [&](int64_t layer) { return slides && layer >= first; });
  for (const bool layer : c.sliding)
    if (layer && !slides) config.refuse("layer_types holds 'sliding_attention', but use_sliding_window is not true");
}

// The nearest bf16 of a normal number: 8 significant bits.
float rounded_to_bf16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

// Sliding layers rotate by a table of their own. New spelling: rope_parameters holds one set for each kind of layer;
// old: rope_theta and rope_scaling are the global layers', rope_local_base_freq is the sliding ones' (transformers,
// models/gemma3/configuration_gemma3.py, convert_rope_params_to_dict).
void read_gemma3_rope(const ConfigFields& config, ModelConfig& c) {
  const json none = json::object();
  const json* nested = config.object("rope_parameters");
  const ConfigFields sets(nested ? *nested : none, config.path(), "rope_parameters.");
  for (const auto& [key, value] : sets.object().items())
    if (key != kSlidingLayer && key != kGlobalLayer)
      config.refuse(fmt::format("rope_parameters.{} is {}, expected one set of parameters for each kind of layer", key,
                                in_quotes(value.dump())),
                    fmt::format("the kinds: {}, {}", kSlidingLayer, kGlobalLayer));
  const auto set_of = [&](const char* kind, const char* theta_key, double theta, const char* scaling_key) {
    json merged = none;
    if (const json* set = sets.object(kind)) merged = *set;
    const json* scaling = scaling_key ? config.object(scaling_key) : nullptr;
    if (scaling) merged.update(*scaling);
    const ConfigFields rope(merged, config.path(),
                            scaling ? "rope_scaling." : fmt::format("rope_parameters.{}.", kind));
    return read_rope(config, rope, config.number(theta_key, theta, 0, 1e15, true), c.max_position);
  };
  c.rope = set_of(kGlobalLayer, "rope_theta", 1e6, "rope_scaling");
  c.local_rope = set_of(kSlidingLayer, "rope_local_base_freq", 1e4, nullptr);
}

void read_gemma3(const ConfigFields& config, ModelConfig& c) {
  const Defaults absent{.hidden = 2304,
                        .layers = 26,
                        .heads = 8,
                        .kv_heads = 4,
                        .head_dim = 256,
                        .intermediate = 9216,
                        .vocab = 262208,
                        .max_position = 131072,
                        .tied = true,
                        .bos = 2,
                        .eos = 1,
                        .pad = 0};
  c.family = Family::gemma3;
  c.norm = Norm::rms_one_plus;
  c.head_norm = true;
  c.activation = Activation::gelu_tanh;
  refuse_true(config, {"attention_bias"}, "biases are not supported");
  refuse_true(config, {"use_bidirectional_attention"}, "only causal attention is supported");
  expect_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  read_sizes(config, absent, c);
  read_tokens(config, absent, c);
  c.embedding_scale = rounded_to_bf16(std::sqrt(static_cast<double>(c.hidden)));
  c.query_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256, 0, 1e9, true));
  read_gemma3_rope(config, c);
  c.window = config.integer("sliding_window", 4096, 1, kLongestContext);
  const int64_t pattern = config.integer("sliding_window_pattern", 6, 1, kMostLayers);
  c.sliding = read_sliding(config, c.layers, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

Activation read_gelu(const ConfigFields& config, const std::string& key) {
  const std::string name = config.text(key, "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  config.refuse(fmt::format("{} is {}", key, in_quotes(name)), "supported: gelu_new, gelu_pytorch_tanh, gelu");
}

// GPT-2, and nanoGPT saved as one; nanoGPT's own gelu is exact. Sizes go by the names of this family or of the others.
void read_gpt2(const ConfigFields& config, ModelConfig& c) {
  const Defaults absent{.hidden = 768,
                        .layers = 12,
                        .heads = 12,
                        .kv_heads = 0,
                        .head_dim = 0,
                        .intermediate = 0,
                        .vocab = 50257,
                        .max_position = 1024,
                        .tied = true,
                        .bos = 50256,
                        .eos = 50256,
                        .pad = {}};
  c.family = Family::gpt2;
  c.norm = Norm::layer;
  c.biases = {.qkv = true, .out = true, .gate_up = true, .down = true};
  c.learned_positions = true;
  c.gated = false;
  refuse_true(config, {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}, "which is not supported");
  const auto size = [&](const char* key, const char* other, int64_t value, int64_t most) {
    return config.integer(key, config.integer(other, value, 1, most), 1, most);
  };
  c.hidden = size("n_embd", "hidden_size", absent.hidden, kWidest);
  c.layers = size("n_layer", "num_hidden_layers", absent.layers, kMostLayers);
  c.heads = c.kv_heads = size("n_head", "num_attention_heads", absent.heads, kMostHeads);
  if (c.hidden % c.heads != 0)
    config.refuse(fmt::format("n_embd is {}, expected a multiple of n_head, {}", c.hidden, c.heads));
  c.head_dim = c.hidden / c.heads;
  c.intermediate = config.integer("n_inner", 4 * c.hidden, 1, kWidest);
  c.vocab = config.integer("vocab_size", absent.vocab, 1, kMostTokens);
  c.max_position = size("n_positions", "max_position_embeddings", absent.max_position, kMostTokens);
  c.eps = static_cast<float>(config.number("layer_norm_epsilon", 1e-5, 0, 1, false));
  c.activation = read_gelu(config, "activation_function");
  if (!config.boolean("scale_attn_weights", true)) c.query_scale = 1;
  read_tokens(config, absent, c);
}

constexpr Architecture kArchitectures[] = {{"LlamaForCausalLM", read_llama},
                                           {"Qwen3ForCausalLM", read_qwen3},
                                           {"Gemma3ForCausalLM", read_gemma3},
                                           {"GPT2LMHeadModel", read_gpt2}};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

}  // namespace nodewright
