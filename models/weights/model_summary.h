// What a checkpoint is, in numbers: counted from config.json and the headers of the weight files. No tensor is read and
// no device is needed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weights.h"

namespace nodewright {

// Some of the tensors that loading reads.
struct TensorShare {
  std::string name;  // "attention", a dtype as the file spells it, "BF16", or a format, "fp8"
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // in the files
};

struct ModelSummary {
  std::vector<TensorShare> kinds;   // embedding, positions, attention, feed-forward, norms, head, other; none is empty
  std::vector<TensorShare> dtypes;  // by name
  TensorShare total;
  uint64_t device_bytes = 0;                 // of the weights once loaded: bf16, FP8 or int4, rows padded to 16 bytes
  ModelLayouts layouts;                      // of the layers' matrices once loaded
  uint64_t bytes_per_token = 0;              // of the weights, that a decode step of one token moves
  uint64_t kv_bytes_per_token = 0;           // of all layers; a token that all of them attend to moves as many
  uint64_t windowed_kv_bytes_per_token = 0;  // of those, of layers that attend to a window
};

// Throws Error where config and tensors disagree, as loading does.
ModelSummary summarize(const Checkpoint& checkpoint, const ModelConfig& config,
                       LayerMatrices matrices = LayerMatrices::stored);

// What as many sequences of equal length could hold on a device.
struct ContextFit {
  int64_t sequences = 0;
  int64_t tokens = 0;         // of each: whole pages, at most the context the model was made for
  uint64_t short_bytes = 0;   // that a decode step of all of them moves at least: the weights
  uint64_t filled_bytes = 0;  // and with `tokens` tokens in each, every layer attending to all, or to its window
};

// `free_bytes` are those left for weights and cache; activations and graphs, some MB, are not counted. `window_pages`:
// the most that a sequence holds in a layer with a window.
ContextFit context_fit(const ModelSummary& summary, const ModelConfig& config, uint64_t free_bytes, int64_t sequences,
                       int64_t window_pages);

// A stage of a pipeline (models/config/stage.h).
struct StageSummary {
  ModelConfig config;
  ModelSummary summary;
};
// The same where each stage has a device with `free_bytes`: the tokens are those of the stage that has room for the
// fewest, and the bytes those of all stages.
ContextFit context_fit(std::span<const StageSummary> stages, uint64_t free_bytes, int64_t sequences,
                       int64_t window_pages);

}  // namespace nodewright
