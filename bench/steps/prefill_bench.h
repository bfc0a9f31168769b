// Times whole prompts that go through a model in one step, form by form, beside the matrix rate of the same minutes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/spread.h"
#include "engine/device/prefill_form.h"
#include "graph/edges/edge_derivation.h"
#include "models/decoder_model.h"
#include "models/step/step_shape.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct PrefillBenchOptions {
  std::vector<int64_t> tokens{1, 16, 128, 1024, 8192};
  std::vector<PrefillForm> forms{PrefillForm::graph, PrefillForm::piecewise, PrefillForm::eager};
  std::optional<int64_t> products_from;
  std::shared_ptr<const Tuning> tuning;
  EdgePolicy policy = EdgePolicy::programmatic;
  Numerics numerics = Numerics::fast;
  int64_t max_context = 0;  // of the graphs; 0, or less than the prompt: the prompt's tokens
  int samples = 10;
  int64_t product_edge = 0;  // of the square product that gives the matrix rate; 0: 8192 on a GPU, 64 on the CPU driver
};

struct PrefillBenchLine {
  int64_t tokens = 0;
  PrefillForm form = PrefillForm::graph;
  Spread ms;  // host time from the launch to the end of the step, which reads its inputs and chooses one token
  double weight_flops = 0, attention_flops = 0;  // two a multiplication; attention: the keys that a row sees
  Spread product_flops_per_s;                    // the matrix rate, alternating with the steps
  double share = 0;                              // (weight + attention flops) / time / matrix rate
};

// `told` gets each line as it is measured. Throws Error for a prompt beyond the model's context.
std::vector<PrefillBenchLine> bench_prefill(Device& device, const Stream& stream, KernelCache& kernels,
                                            const DecoderModel& model, const PrefillBenchOptions& options,
                                            const std::function<void(const PrefillBenchLine&)>& told);

}  // namespace nodewright
