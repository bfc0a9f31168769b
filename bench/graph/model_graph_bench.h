// What a model's decode plan costs in each way of running it, and what the graphs of all buckets cost together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bench/graph/graph_bench.h"
#include "bench/spread.h"
#include "graph/exec_budget.h"
#include "graph/plan_run.h"
#include "models/decoder_model.h"
#include "models/kv_cache.h"
#include "models/lowering/decoder_kernels.h"
#include "models/step/decode_state.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct ModelGraphOptions {
  int64_t rows = 1;
  int64_t context = 1024;  // keys a row attends to, and tokens of the longest sequence
  int repetitions = 15;
  int steps_a_sample = 20;  // launches back to back between two events
};

// Microseconds of the whole plan. What a mode does not do is zero.
struct ModelModeLine {
  RunMode mode = RunMode::explicit_;
  Spread record_us;       // explicit: checks and cuGraphAddNode; captured: capture
  Spread instantiate_us;  // cuGraphInstantiateWithParams
  Spread upload_us;       // cuGraphUpload; explicit: until the stream is idle
  Spread launch_us;       // CPU time of one launch on an idle stream
  Spread step_us;         // GPU time of a launch, back to back
};

struct ModelGraphResult {
  size_t nodes = 0, edges = 0, programmatic_edges = 0;
  Spread plan_us;  // GraphBuilder, the same for all modes
  std::vector<ModelModeLine> modes;
};

// Explicit, captured and eager, in turns.
ModelGraphResult bench_model_graph(Device& device, const Stream& stream, KernelCache& kernels,
                                   const DecoderModel& model, const ModelGraphOptions& options);

struct BucketLine {
  int64_t rows = 0;
  int slot = 0;
  size_t nodes = 0;
  double plan_us = 0, add_us = 0, instantiate_us = 0, upload_us = 0;  // upload: until the stream is idle
  double longest_us = 0;                                              // of its builds, one a set: total_us()
  ExecCost estimate;                                                  // made of the plan before it was built
  uint64_t free_fell_bytes = 0;  // by how much the device's free memory fell, in the driver's steps of 2 MiB
  double exec_bytes = 0;  // of one of many like graphs (bytes_per_exec), measured for slot 0; 0: the driver shows none
  double total_us() const { return plan_us + add_us + instantiate_us + upload_us; }
};

struct BucketsResult {
  size_t kernels = 0, kernels_compiled = 0;  // that all buckets need; that were not on disk
  double kernels_ms = 0;                     // compiling and loading them, in as many threads as there are cores
  double reserve_ms = 0;                     // reserve_graphs for all of them, where that was asked for
  BucketLine first;                          // an extra graph of the first bucket, built before all others
  std::vector<BucketLine> lines;             // slot by slot; of each graph's builds, one a set, that of median total
  std::vector<double> set_ms;                // all of a set, set by set
  uint64_t free_fell_bytes = 0;              // from before the first set's first graph to after its last
  double launch_all_ms = 0;                  // one launch of each graph with no live row, until the last has run
};

// The decode graphs of every bucket for `slots` slots of activations.
class BucketBench {
 public:
  BucketBench(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
              std::vector<int64_t> buckets, int slots, int64_t context);

  // Builds them, all alive at once, launches each once, and destroys them; then the whole set again, `sets` times in
  // all (odd). With `reserve` after reserve_graphs for as many.
  BucketsResult build(bool reserve, int sets);

  // Fills in what one graph of each bucket takes of the device's memory, from many of them, which are in `kept` then
  // and which nobody may launch.
  void measure_memory(BucketsResult& result, KeptGraphs& kept) const;

 private:
  Plan plan_of(int64_t rows, int slot) const;
  std::vector<BucketLine> build_set(KeptGraphs& graphs) const;
  BucketLine build_one(int64_t rows, int slot, KeptGraphs& graphs) const;

  Device& device_;
  const Stream& stream_;
  KernelCache& kernels_;
  const DecoderModel& model_;
  std::vector<int64_t> buckets_;
  int64_t context_;
  KvCache cache_;
  std::vector<std::unique_ptr<DecodeSlot>> memory_;  // by slot
  std::map<int64_t, DecoderKernels> chosen_;         // by rows
};

}  // namespace nodewright
