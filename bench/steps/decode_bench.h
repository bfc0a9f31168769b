// Times decode steps of one model: batch by batch, context by context, beside the read bandwidth of the same minutes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/spread.h"
#include "engine/direct_steps.h"
#include "models/decoder_model.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct DecodeBenchOptions {
  std::vector<int64_t> batches{1}, contexts{1024};
  std::vector<int64_t> adapter_ranks{0};  // of the adapters that all rows have, up to 8 different ones; 0: none
  std::vector<RunMode> modes{RunMode::explicit_};
  EdgePolicy policy = EdgePolicy::programmatic;
  std::optional<int64_t> products_from;
  Numerics numerics = Numerics::fast;
  LaunchSteps steps;  // of a launch
  std::shared_ptr<const Tuning> tuning;
  int64_t max_context = 0;       // of the graphs; 0: the longest of `contexts`, plus the steps
  int samples = 20;              // of each figure; medians are reported
  int launches_per_sample = 20;  // back to back between two events
  uint64_t read_bytes = 0;       // streamed for the ceiling; 0: 4 GiB on a GPU, 64 MiB on the CPU driver
};

struct DecodeBenchLine {
  int64_t adapter_rank = 0;
  int64_t batch = 0, context = 0;  // rows; keys that a launch's first step attends to in each, its own included
  RunMode mode = RunMode::explicit_;
  Spread step_ms;             // device time a step, back to back
  Spread wall_ms;             // host time a step, of launches that wait for their tokens
  uint64_t weight_bytes = 0;  // a step must read
  uint64_t kv_bytes = 0;      // the mean of a launch's steps
  Spread read_bytes_per_s;    // the ceiling, alternating with the steps
  double share = 0;           // (weight + kv bytes) / step time / ceiling
  size_t nodes = 0;
  double build_ms = 0;
};

// Bytes of keys and values that a step of `batch` rows reads, the mean of a launch of `steps` of them, of which the
// first has `context` keys a row.
uint64_t kv_bytes_of_step(const ModelConfig& config, int64_t batch, int64_t context, int64_t steps);

// DirectStepsOptions::prefill_rows that fill long contexts soon.
int64_t filling_rows(int64_t context);
// Puts context - 1 tokens into a sequence for every row of the bucket, each with one of the adapters where there are
// some, and launches their next steps. Launching the rows that are returned goes on from there; the run of the steps
// attends to `context` keys in its first step.
std::vector<StepRow> fill_bucket(DirectSteps& steps, int64_t context);

// `told` gets each line as it is measured.
std::vector<DecodeBenchLine> bench_decode(Device& device, const Stream& stream, KernelCache& kernels,
                                          const DecoderModel& model, const DecodeBenchOptions& options,
                                          const std::function<void(const DecodeBenchLine&)>& told);

}  // namespace nodewright
