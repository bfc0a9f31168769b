// The second choice of a step as a plan of its own, launched when the masks of its rows are known: from the step's
// logits, for the rows that ask for it, over what the step's own choice left.
#pragma once

#include <vector>

#include "graph/graph_builder.h"
#include "kernels_src/sampling/record_choice.h"
#include "kernels_src/sampling/sample.h"
#include "kernels_src/sampling/shape_logits.h"
#include "models/step/choice_state.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct ChoiceKernels {
  Kernel<ShapeLogits> shape;
  Kernel<Sample> sample;
  Kernel<RecordChoice> record;
};

// The kernels that choice_kernels() requests for `rows` rows: the same for every model.
std::vector<KernelRequest> choice_kernel_requests(int64_t rows, const DeviceProperties& device);

// Throws Error when a kernel does not compile, with the compiler's words.
ChoiceKernels choice_kernels(KernelCache& cache, const ChoiceState& state);

// A plan named "choice.b<rows>" over the logits and last tokens of `step`. Everything is borrowed and must outlive its
// runs. The caller copies the outputs.
Plan choice_plan(Device& device, int64_t vocab, const ChoiceKernels& kernels, const DecodeState& step,
                 const ChoiceState& state, EdgePolicy policy);

}  // namespace nodewright
