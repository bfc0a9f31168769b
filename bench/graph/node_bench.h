// Times every node of one model's step: of rows that decode, or of a prompt.
#pragma once

#include <cstdint>
#include <string>

#include "graph/timing/plan_timings.h"
#include "graph/timing/timed_twin.h"
#include "models/decoder_model.h"
#include "models/step/step_shape.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct NodeBenchOptions {
  int64_t batch = 1;        // rows, all live
  int64_t context = 1024;   // keys a row attends to, its own included
  int64_t max_context = 0;  // what the graph is built for, and the bytes that attention is said to read; 0: context
  int64_t prompt = 0;       // tokens of a prompt that goes through in one step instead; 0: rows decode
  EdgePolicy policy = EdgePolicy::programmatic;
  Numerics numerics = Numerics::fast;
  std::shared_ptr<const Tuning> tuning;
  int samples = 30;
  int launches_per_sample = 10;
  int block_launches = 0;  // launches of which every block is reported
};

struct NodeBench {
  int64_t max_context = 0;  // of the graph
  Plan plan;                // of buffers that are gone: for names, bytes and edges
  PlanTimings timings;
  std::vector<std::vector<BlockSpan>> blocks;  // of each of block_launches
};

// "5.2% longer" than the plain step, or "5.2% less" where a step's times vary by more than the twin adds.
std::string twin_words(const PlanTimings& timings);

// Measures the read bandwidth of the same minutes too. Throws Error (usage) on a CPU driver that overwrites what a step
// has copied in: the same step is launched again and again.
NodeBench bench_nodes(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
                      const NodeBenchOptions& options);

}  // namespace nodewright
