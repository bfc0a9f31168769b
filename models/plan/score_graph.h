// Scores a slice of a prompt as a plan of its own, launched after a step: the head over rows of the residual that the
// step has left, and the log probability of the token that follows each.
#pragma once

#include <memory>
#include <vector>

#include "graph/graph_builder.h"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/residual/gather_residual.h"
#include "kernels_src/residual/norm_rows.h"
#include "kernels_src/sampling/cap_logits.h"
#include "kernels_src/sampling/record_choice.h"
#include "models/decoder_model.h"
#include "models/step/score_state.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

struct ScoreKernels {
  Kernel<GatherResidual> gather;
  Kernel<NormProject> logits;  // empty where the head is a product
  bool holds = false;          // the head is tiles past held rows, which the gathered rows are prepared for
  Kernel<NormRows> norm;       // empty where it is not
  Kernel<CapLogits> cap;       // empty but after a product whose logits are capped
  std::shared_ptr<const MatmulPlan> head;
  Kernel<RecordChoice> record;
};

// What score_kernels will ask the cache for.
std::vector<KernelRequest> score_kernel_requests(KernelCache& cache, const ModelConfig& config,
                                                 const ScoreLimits& limits);

// Throws Error when a kernel does not compile, with the compiler's words, and where a product is asked for and there is
// no cuBLASLt.
ScoreKernels score_kernels(KernelCache& cache, const ModelConfig& config, const ScoreLimits& limits);

// A plan named "score.s<index>"; of a rank of a team, over its part of the vocabulary. `counts`: of the slot's choices;
// declared, and left as they are. Everything is borrowed and must outlive its runs. The caller copies the
// outputs.
Plan score_plan(Device& device, const DecoderModel& model, const ScoreKernels& kernels, const ScoreState& state,
                View<int32_t> counts, int64_t index, EdgePolicy policy);

}  // namespace nodewright
