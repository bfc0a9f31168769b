// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and gguf-py/gguf/constants.py; what a file holds
// otherwise than the checkpoint it was made from: convert_hf_to_gguf.py.
#include "models/config/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr const char* kDoingGguf = "read the model configuration";

struct GgufFamily {
  std::string_view name;          // general.architecture
  std::string_view architecture;  // of config.json
  bool pairs_neighbours = false;  // the file's query and key heads are reordered so that 2i and 2i + 1 turn together
};
constexpr GgufFamily kFamilies[] = {{"llama", "LlamaForCausalLM", true},
                                    {"granite", "GraniteForCausalLM", true},
                                    {"smollm3", "SmolLM3ForCausalLM", true},
                                    {"qwen2", "Qwen2ForCausalLM"},
                                    {"qwen3", "Qwen3ForCausalLM"},
                                    {"qwen3moe", "Qwen3MoeForCausalLM"},
                                    {"phi3", "Phi3ForCausalLM"},
                                    {"olmo2", "Olmo2ForCausalLM"},
                                    {"gemma", "GemmaForCausalLM"},
                                    {"gemma2", "Gemma2ForCausalLM"},
                                    {"gemma3", "Gemma3ForCausalLM"}};

const GgufFamily& family_of(const GgufModel& model) {
  const std::string name = model.text("general.architecture").value_or("");
  std::string supported;
  for (const GgufFamily& family : kFamilies) {
    if (family.name == name) return family;
    supported += (supported.empty() ? "" : ", ") + std::string(family.name);
  }
  throw Error(
      {.doing = kDoingGguf,
       .object = model.path().string(),
       .detail = fmt::format("general.architecture is {}, which is not supported in a GGUF file", in_quotes(name)),
       .advice = "supported: " + supported + "; or the checkpoint in the Hugging Face layout"});
}

class GgufConfig {
 public:
  explicit GgufConfig(const GgufModel& model)
      : model_(model), family_(family_of(model)), prefix_(std::string(family_.name) + ".") {}

  json read() {
    config_["architectures"] = {is_mixtral() ? "MixtralForCausalLM" : std::string(family_.architecture)};
    read_sizes();
    read_rope();
    read_tokens();
    read_factors();
    if (model_.integer(prefix_ + "expert_count").value_or(0) > 0) read_experts();
    refuse_unread();
    config_["tie_word_embeddings"] = model_.find("output.weight") == nullptr;
    return std::move(config_);
  }

 private:
  [[noreturn]] void refuse(std::string detail, std::string advice = {}) const {
    throw Error({.doing = kDoingGguf,
                 .object = model_.path().string(),
                 .detail = std::move(detail),
                 .advice = std::move(advice)});
  }
  bool is_mixtral() const { return family_.name == "llama" && model_.integer("llama.expert_count").value_or(0) > 0; }

  // A number for all layers, which may be written as an array of one for each.
  std::optional<int64_t> of_layers(const std::string& key) const {
    const std::string whole = prefix_ + key;
    const auto found = model_.metadata().find(whole);
    if (found == model_.metadata().end() || !std::holds_alternative<std::vector<double>>(found->second))
      return model_.integer(whole);
    const std::vector<double>& all = *model_.numbers(whole);
    if (all.empty() || std::ranges::any_of(all, [&](double one) { return one != all.front(); }) ||
        all.front() != std::trunc(all.front()) || std::abs(all.front()) > 1e9)
      refuse(fmt::format("key {} differs between layers, which is not supported", in_quotes(whole)));
    return static_cast<int64_t>(all.front());
  }
  int64_t required(const std::string& key) const {
    const std::optional<int64_t> found = of_layers(key);
    if (!found) refuse(fmt::format("key {} is missing", in_quotes(prefix_ + key)));
    return *found;
  }
  void set_number(const char* ours, const std::string& theirs) {
    if (const auto found = model_.number(prefix_ + theirs)) config_[ours] = *found;
  }

  void read_sizes() {
    const GgufTensor* embedding = model_.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2)
      refuse("tensor 'token_embd.weight' is missing or no matrix");
    const int64_t hidden = required("embedding_length"), heads = required("attention.head_count");
    if (heads < 1) refuse(fmt::format("key {} is {}", in_quotes(prefix_ + "attention.head_count"), heads));
    config_["vocab_size"] = embedding->shape[0];
    config_["hidden_size"] = hidden;
    config_["num_hidden_layers"] = required("block_count");
    config_["num_attention_heads"] = heads;
    config_["num_key_value_heads"] = of_layers("attention.head_count_kv").value_or(heads);
    const int64_t head_dim = model_.integer(prefix_ + "attention.key_length").value_or(hidden / heads);
    if (model_.integer(prefix_ + "attention.value_length").value_or(head_dim) != head_dim)
      refuse("keys and values have heads of different length, which is not supported");
    config_["head_dim"] = head_dim;
    config_["intermediate_size"] = required("feed_forward_length");
    config_["max_position_embeddings"] = required("context_length");
    set_number("rms_norm_eps", "attention.layer_norm_rms_epsilon");
    config_["attention_bias"] = model_.find("blk.0.attn_q.bias") != nullptr && family_.name != "qwen2";
    if (family_.name == "gemma" || family_.name == "gemma2" || family_.name == "gemma3") {
      config_["hidden_activation"] = "gelu_pytorch_tanh";
      config_["attention_bias"] = false;
      // The largest of either family divides by the width that heads would have (llama.cpp, src/models/gemma3.cpp).
      const bool largest = config_["num_hidden_layers"] == (family_.name == "gemma2" ? 46 : 62);
      config_["query_pre_attn_scalar"] = largest ? hidden / heads : head_dim;
    }
    if (const auto window = model_.integer(prefix_ + "attention.sliding_window"); window && *window > 0) {
      config_["sliding_window"] = *window;
    } else if (family_.name == "llama" || family_.name == "phi3") {
      config_["sliding_window"] = nullptr;
    }
    set_number("attn_logit_softcapping", "attn_logit_softcapping");
    set_number("final_logit_softcapping", "final_logit_softcapping");
    if (family_.name == "gemma3") config_["attn_logit_softcapping"] = config_["final_logit_softcapping"] = nullptr;
  }

  // Keys that change what the network computes and that nothing here reads, unless they say what is computed anyway.
  void refuse_unread() const {
    struct Unread {
      std::string_view key;
      double harmless;
      std::string_view read_by = {};  // the family that reads it
    };
    constexpr Unread kUnread[] = {{"attention.scale", 0, "granite"},
                                  {"embedding_scale", 0, "granite"},
                                  {"residual_scale", 0, "granite"},
                                  {"logit_scale", 0, "granite"},
                                  {"attention.clamp_kqv", 0},
                                  {"attention.max_alibi_bias", 0},
                                  {"attention.causal", 1},
                                  {"expert_shared_count", 0},
                                  {"expert_weights_scale", 1},
                                  {"expert_gating_func", 1},
                                  {"rope.scaling.attn_factor", 1, "phi3"},
                                  {"rope.scaling.yarn_log_multiplier", 0},
                                  {"rope.scaling.yarn_ext_factor", 1},
                                  {"rope.scaling.yarn_attn_factor", 1}};
    for (const Unread& one : kUnread)
      if (one.read_by != family_.name) refuse_other(one.key, one.harmless);
    if (family_.name == "olmo2") refuse_other("attention.sliding_window", 0);  // OLMo 3, under the same name
    if (family_.name != "gemma3") return;
    refuse_other("final_logit_softcapping", 0);
    refuse_other("attention.sliding_window_pattern", 6);
    refuse_other("rope.freq_base_swa", 10000);
  }
  void refuse_other(std::string_view key, double harmless) const {
    const std::string whole = prefix_ + std::string(key);
    const auto found = model_.metadata().find(whole);
    if (found == model_.metadata().end()) return;
    const auto* flag = std::get_if<bool>(&found->second);
    if (flag != nullptr ? (*flag ? 1 : 0) == harmless : model_.number(whole) == harmless) return;
    refuse(fmt::format("key {} is not {}, which is not supported", in_quotes(whole), harmless));
  }

  // Factors of frequencies, one for each pair, that the file holds as a tensor.
  json factors_of(const char* name) const {
    const GgufTensor* tensor = model_.find(name);
    if (tensor == nullptr) return nullptr;
    constexpr int64_t kMostPairs = 1 << 12;
    if (tensor->type->name != "F32" || tensor->shape.size() != 1 || tensor->shape[0] > kMostPairs)
      refuse(fmt::format("tensor {} is no vector of F32", in_quotes(name)));
    std::vector<float> values(static_cast<size_t>(tensor->shape[0]));
    tensor->file->read(tensor->offset, std::as_writable_bytes(std::span(values)));
    if (std::ranges::any_of(values, [](float v) { return !std::isfinite(v); }))
      refuse(fmt::format("tensor {} holds a number that is not finite", in_quotes(name)));
    return json(values);
  }

  void read_rope() {
    const std::string rope = prefix_ + "rope.";
    const int64_t head_dim = config_["head_dim"], turned = model_.integer(rope + "dimension_count").value_or(head_dim);
    if (turned != head_dim)
      config_["partial_rotary_factor"] =
          static_cast<double>(turned) / static_cast<double>(std::max<int64_t>(head_dim, 1));
    config_["rope_theta"] = model_.number(rope + "freq_base").value_or(10000.0);
    const int64_t context = config_["max_position_embeddings"];
    const int64_t original = model_.integer(rope + "scaling.original_context_length").value_or(context);
    json scaling = scaling_of_type(rope, original);
    const bool scales = !scaling.empty();
    if (const json factors = factors_of("rope_freqs.weight"); !factors.is_null()) {
      // Llama 3's scaling, worked out by the converter; the same whatever the context.
      scaling = {{"rope_type", "longrope"}, {"short_factor", factors}, {"long_factor", factors},
                 {"factor", 1.0},           {"attention_factor", 1.0}, {"original_max_position_embeddings", context}};
    } else if (const json short_ones = factors_of("rope_factors_short.weight"); !short_ones.is_null()) {
      const json long_ones = factors_of("rope_factors_long.weight");
      if (long_ones.is_null()) refuse("tensor 'rope_factors_long.weight' is missing");
      scaling = {{"rope_type", "longrope"},
                 {"short_factor", short_ones},
                 {"long_factor", long_ones},
                 {"original_max_position_embeddings", original}};
      if (const auto factor = model_.number(rope + "scaling.attn_factor")) scaling["attention_factor"] = *factor;
      config_["original_max_position_embeddings"] = original;
    }
    if (scales && scaling["rope_type"] == "longrope")
      refuse(fmt::format("it has keys {}* beside a tensor of factors, which is not supported",
                         in_quotes(rope + "scaling.")));
    if (!scaling.empty()) config_["rope_scaling"] = scaling;
  }

  json scaling_of_type(const std::string& rope, int64_t original) const {
    const std::string type = model_.text(rope + "scaling.type").value_or("linear");  // as llama.cpp has it
    const auto old = model_.number(rope + "scale_linear");                           // of older files
    const double factor = model_.number(rope + "scaling.factor").value_or(old.value_or(1.0));
    if (type == "none" || type == "longrope" || (type == "linear" && factor == 1)) return json::object();
    if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
    if (type != "yarn")
      refuse(fmt::format("key {} is {}, expected none, linear or yarn", in_quotes(rope + "scaling.type"),
                         in_quotes(type)));
    json scaling = {{"rope_type", "yarn"}, {"factor", factor}, {"original_max_position_embeddings", original}};
    if (const auto fast = model_.number(rope + "scaling.yarn_beta_fast")) scaling["beta_fast"] = *fast;
    if (const auto slow = model_.number(rope + "scaling.yarn_beta_slow")) scaling["beta_slow"] = *slow;
    return scaling;
  }

  // llama.cpp ends a text at any token that ends a turn, which it finds by its text where no key names it
  // (llama-vocab.cpp).
  void read_tokens() {
    if (const auto bos = model_.integer("tokenizer.ggml.bos_token_id"))
      config_["bos_token_id"] = *bos;
    else
      config_["bos_token_id"] = nullptr;
    std::vector<int64_t> ends;
    const auto add = [&](int64_t id) {
      if (id >= 0 && std::ranges::count(ends, id) == 0) ends.push_back(id);
    };
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
      if (const auto id = model_.integer(std::string("tokenizer.ggml.") + key)) add(*id);
    constexpr std::string_view kEnds[] = {"<|eot_id|>", "<|im_end|>",    "<|end|>", "<end_of_turn>",
                                          "<|eom_id|>", "<|endoftext|>", "<EOT>",   "<|end_of_text|>"};
    if (const std::vector<std::string>* tokens = model_.texts("tokenizer.ggml.tokens"))
      for (size_t id = 0; id < tokens->size(); ++id)
        if (std::ranges::count(kEnds, (*tokens)[id]) > 0) add(static_cast<int64_t>(id));
    if (!ends.empty()) config_["eos_token_id"] = ends;
    config_["pad_token_id"] = nullptr;
  }

  // Granite's.
  void read_factors() {
    if (family_.name != "granite") return;
    set_number("attention_multiplier", "attention.scale");
    set_number("embedding_multiplier", "embedding_scale");
    set_number("residual_multiplier", "residual_scale");
    set_number("logits_scaling", "logit_scale");
  }

  void read_experts() {
    const int64_t count = required("expert_count");
    config_[is_mixtral() ? "num_local_experts" : "num_experts"] = count;
    config_["num_experts_per_tok"] = required("expert_used_count");
    if (family_.name != "qwen3moe") return;
    config_["moe_intermediate_size"] = required("expert_feed_forward_length");
    config_["norm_topk_prob"] = true;  // as llama.cpp has it (src/models/qwen3moe.cpp)
  }

  const GgufModel& model_;
  const GgufFamily& family_;
  const std::string prefix_;
  json config_ = json::object();
};

}  // namespace

json gguf_config(const GgufModel& model) { return GgufConfig(model).read(); }

void apply_gguf(const GgufModel& model, ModelConfig& config) {
  const GgufFamily& family = family_of(model);
  config.rotates_neighbours = family.pairs_neighbours;
  TensorNames& n = config.names;
  n.prefix.clear();
  n.other_prefix.clear();
  n.embedding = "token_embd", n.final_norm = "output_norm", n.head = "output", n.layers = kGgufLayers;
  const auto rename = [](std::string& name, const char* to) {
    if (!name.empty()) name = to;
  };
  rename(n.attention_norm, "attn_norm");
  rename(n.q_norm, "attn_q_norm");
  rename(n.k_norm, "attn_k_norm");
  rename(n.out, "attn_output");
  rename(n.attention_post_norm, "post_attention_norm");
  rename(n.feed_forward_norm, "ffn_norm");
  rename(n.gate, "ffn_gate");
  rename(n.up, "ffn_up");
  rename(n.gate_up, "ffn_up");  // Phi-3's holds both
  rename(n.down, "ffn_down");
  rename(n.feed_forward_post_norm, "post_ffw_norm");
  rename(n.router, "ffn_gate_inp");
  rename(n.experts, "experts");  // models/weights/formats/gguf_format.cpp names them so
  rename(n.expert_gate, "ffn_gate_exps");
  rename(n.expert_up, "ffn_up_exps");
  rename(n.expert_down, "ffn_down_exps");
  n.qkv =
      n.qkv.size() == 1 ? std::vector<std::string>{"attn_qkv"} : std::vector<std::string>{"attn_q", "attn_k", "attn_v"};
}

}  // namespace nodewright
