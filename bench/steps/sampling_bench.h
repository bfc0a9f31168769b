// What choosing costs: decode steps whose rows all choose alike, beside greedy steps of the same graph that take turns
// with them. Steps run as the engine runs them, in two slots, with the second choice where the settings need it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/spread.h"
#include "bench/steps/row_sampling.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

struct SamplingBenchOptions {
  std::vector<int64_t> batches{1}, contexts{1024};
  std::vector<RowSampling> settings;  // greedy is measured in any case
  std::vector<RunMode> modes{RunMode::explicit_};
  EdgePolicy policy = EdgePolicy::programmatic;
  std::optional<int64_t> products_from;
  Numerics numerics = Numerics::fast;
  std::shared_ptr<const Tuning> tuning;
  int64_t max_context = 0;       // of the graphs; 0: the longest of `contexts`
  int samples = 20;              // of each figure; medians are reported
  int launches_per_sample = 20;  // back to back between two events
};

struct SamplingBenchLine {
  int64_t batch = 0, context = 0;  // rows; keys that each attends to
  RunMode mode = RunMode::explicit_;
  std::string sampling;
  bool second_choice = false;  // its rows are chosen again (models/plan/choice_graph.h)
  Spread step_us;              // device time a step, both choices included
  Spread over_greedy_us;       // beside the greedy steps of the same sample; of greedy itself 0
  int64_t unlike_greedy = 0;   // rows whose last token is another than greedy's
};

// `told` gets each line as it is measured: of each batch, context and mode first greedy, then the settings in order.
// Throws Error for settings that the model's vocabulary refuses.
std::vector<SamplingBenchLine> bench_sampling(Device& device, KernelCache& kernels, const DecoderModel& model,
                                              const SamplingBenchOptions& options,
                                              const std::function<void(const SamplingBenchLine&)>& told);

}  // namespace nodewright
