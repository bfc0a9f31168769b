// What steps are made for: rows, limits, memory, modes; and the device and model that they run on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "engine/device/built_graphs.h"
#include "engine/device/prefill_form.h"
#include "engine/schedule/bucket_set.h"
#include "models/plan/decoder_graph.h"
#include "runtime/libraries/collectives.h"

namespace nodewright {

class StepFollowers;

struct StepSlotsOptions {
  BucketSet buckets{{1}};               // rows of the graphs
  int eager_rows = 0;                   // of a plan that is launched node by node, as bucket 0; 0: none
  int64_t max_context = 0;              // tokens
  int64_t sequences = 1;                // open at once
  int64_t most_sampled = 0;             // rows of a step that choose; 0: one for each sequence
  int64_t pages = 0;                    // of the cache; 0: what the memory limit leaves
  std::optional<int64_t> window_pages;  // of layers with a window beside others; nothing: as many as of the others
  int64_t request_pages = 0;            // that the cache must have at least; 0: for max_context
  uint64_t memory_limit = 0;            // bytes of weights, state, graphs and pages together; 0: none
  Numerics numerics = Numerics::fast;
  bool choices = false;  // rows may be chosen again
  HiddenStates hidden = HiddenStates::none;
  std::shared_ptr<const Tuning> tuning;  // of this device and model, or none
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  LaunchSteps steps = {};  // of a launch of DirectSteps; those of StepSlots have one
  // Told of every graph when it is there, by the thread that built it, under a lock; may be empty.
  std::function<void(const BuiltBucket&)> built;

  // Rows from which on steps are library products (models/step/step_shape.h); 0: never; none: as suits the network.
  std::optional<int64_t> products_from;
  PrefillForm prefill = PrefillForm::graph;
  AdapterLimits adapters = {};  // that rows may have: a second graph a bucket
  // 2: of a team, buckets that can be are two halves, whose sums are exchanged while the other half computes
  // (models/step/lanes.h).
  int64_t lanes = 1;

  // For a model whose other parts are in other processes (engine/ranks). Rank 0 alone: the followers, which receive
  // every step; and the least page count of all ranks. Empty otherwise.
  StepFollowers* followers = nullptr;
  std::function<int64_t(int64_t own)> least_pages = {};
};

// A device with a model on it: of a team, a rank's part of one (models/config/shard.h); of a pipeline, a stage's layers
// (models/config/stage.h). All must outlive what uses it.
struct ModelPlace {
  Device* device;
  KernelCache* kernels;  // of that device
  const DecoderModel* model;
  Collectives* collectives = nullptr;  // of a rank whose exchanges are a library's calls, else null
};

}  // namespace nodewright
