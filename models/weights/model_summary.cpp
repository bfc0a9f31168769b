#include "models/weights/model_summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "models/kv_cache.h"
#include "models/weights/formats/encoded_matrix.h"

namespace nodewright {
namespace {

struct Kind {
  std::string_view name;
  std::array<std::string_view, 3> words;  // in the names of its tensors
};
// The first that fits: q_norm stands below self_attn and post_feedforward_layernorm is no feed-forward.
constexpr std::array<Kind, 6> kKinds = {{{"embedding", {"embed_tokens.", "wte.", "token_embd."}},
                                         {"positions", {"wpe."}},
                                         {"head", {"lm_head."}},
                                         {"norms", {"norm.", "ln_"}},
                                         {"attention", {"attn.", "attn_"}},
                                         {"feed-forward", {"mlp.", "_moe.", "ffn_"}}}};
constexpr std::array<std::string_view, 7> kOrder = {"embedding", "positions", "attention", "feed-forward",
                                                    "norms",     "head",      "other"};

std::string_view kind_of(std::string_view tensor) {
  if (tensor == "output.weight") return "head";  // of a GGUF file
  for (const Kind& kind : kKinds)
    for (const std::string_view word : kind.words)
      if (!word.empty() && tensor.find(word) != std::string_view::npos) return kind.name;
  return "other";
}

void add(TensorShare& share, const TensorInfo& tensor) {
  share.tensors += 1;
  uint64_t parameters = 1;
  for (const int64_t dimension : tensor.shape) parameters *= static_cast<uint64_t>(dimension);
  share.parameters += parameters;
  share.bytes += tensor.bytes;
}

// That a step of as many sequences moves with `tokens` tokens in each.
uint64_t filled_bytes(const ModelSummary& summary, const ModelConfig& config, int64_t sequences, int64_t tokens) {
  const uint64_t windowed = summary.windowed_kv_bytes_per_token, full = summary.kv_bytes_per_token - windowed;
  const auto all = static_cast<uint64_t>(tokens), seen = std::min(all, static_cast<uint64_t>(config.window));
  return summary.bytes_per_token + static_cast<uint64_t>(sequences) * (all * full + seen * windowed);
}

}  // namespace

ModelSummary summarize(const Checkpoint& checkpoint, const ModelConfig& config, LayerMatrices matrices) {
  const WeightFootprint footprint = weight_footprint(checkpoint, config, matrices);
  ModelSummary summary;
  summary.total.name = "total";
  std::map<std::string_view, TensorShare> kinds;
  std::map<std::string, TensorShare, std::less<>> dtypes;
  for (const TensorInfo* tensor : footprint.tensors) {
    add(kinds[kind_of(tensor->name)], *tensor);
    add(dtypes[tensor->encoded ? tensor->encoded->format() : std::string(dtype_name(tensor->dtype))], *tensor);
    add(summary.total, *tensor);
  }
  const auto append = [](std::vector<TensorShare>& to, std::string_view name, TensorShare share) {
    share.name = name;
    to.push_back(std::move(share));
  };
  for (const std::string_view name : kOrder)
    if (kinds.contains(name)) append(summary.kinds, name, kinds[name]);
  for (const auto& [name, share] : dtypes) append(summary.dtypes, name, share);
  summary.device_bytes = footprint.bytes;
  summary.layouts = footprint.layouts;
  summary.bytes_per_token = footprint.bytes_per_token;
  const uint64_t of_layer = KvCache::page_bytes(config) / kPageTokens;
  summary.kv_bytes_per_token = static_cast<uint64_t>(config.layers) * of_layer;
  summary.windowed_kv_bytes_per_token = static_cast<uint64_t>(config.sliding_layers()) * of_layer;
  return summary;
}

ContextFit context_fit(const ModelSummary& summary, const ModelConfig& config, uint64_t free_bytes, int64_t sequences,
                       int64_t window_pages) {
  const auto all = static_cast<uint64_t>(sequences), most_windowed = static_cast<uint64_t>(window_pages);
  const uint64_t left = free_bytes > summary.device_bytes ? (free_bytes - summary.device_bytes) / all : 0;
  const uint64_t windowed = summary.windowed_kv_bytes_per_token, full = summary.kv_bytes_per_token - windowed;
  uint64_t pages = left / (summary.kv_bytes_per_token * kPageTokens);
  if (windowed > 0 && pages >= most_windowed)  // a longer sequence needs no more for its windows
    pages =
        full == 0 ? UINT64_MAX / kPageTokens : (left - most_windowed * windowed * kPageTokens) / (full * kPageTokens);
  ContextFit fit{.sequences = sequences};
  // A sequence's last page may be part empty: the context the model was made for need not be whole pages.
  fit.tokens = static_cast<int64_t>(std::min(pages * kPageTokens, static_cast<uint64_t>(config.max_position)));
  fit.short_bytes = summary.bytes_per_token;
  fit.filled_bytes = filled_bytes(summary, config, sequences, fit.tokens);
  return fit;
}

ContextFit context_fit(std::span<const StageSummary> stages, uint64_t free_bytes, int64_t sequences,
                       int64_t window_pages) {
  ContextFit fit{.sequences = sequences, .tokens = INT64_MAX};
  for (const StageSummary& stage : stages)
    fit.tokens =
        std::min(fit.tokens, context_fit(stage.summary, stage.config, free_bytes, sequences, window_pages).tokens);
  for (const StageSummary& stage : stages) {
    fit.short_bytes += stage.summary.bytes_per_token;
    fit.filled_bytes += filled_bytes(stage.summary, stage.config, sequences, fit.tokens);
  }
  return fit;
}

}  // namespace nodewright
