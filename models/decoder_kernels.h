// The kernels of a decode plan, specialised for one model, bucket and device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels_src/attend.h"
#include "kernels_src/embed.h"
#include "kernels_src/norm_add.h"
#include "kernels_src/norm_gate_up.h"
#include "kernels_src/norm_project.h"
#include "kernels_src/project.h"
#include "kernels_src/project_add.h"
#include "kernels_src/rope_append.h"
#include "kernels_src/sample.h"
#include "models/decode_state.h"
#include "models/model_config.h"
#include "runtime/kernel_cache.h"

namespace nodewright {

// How a block ends: one kernel that adds to the residual or, in a family with post norms, one that does not and one
// that norms and adds. The others are not compiled.
struct OutputKernels {
  Kernel<ProjectAdd> project_add;
  Kernel<Project> project;
  Kernel<NormAdd> norm_add;
};

struct DecoderKernels {
  Kernel<Embed> embed;
  Kernel<NormProject> norm_qkv;
  Kernel<RopeAppend> rope_append;
  Kernel<Attend> attend;
  OutputKernels attention_out;
  Kernel<NormGateUp> norm_gate_up;
  OutputKernels down;
  Kernel<NormProject> norm_logits;
  Kernel<Sample> sample;
};

// What decoder_kernels will ask the cache for: to be prepared for several buckets in parallel first.
std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, int64_t rows, int sm_count,
                                                   Numerics numerics = Numerics::fast);

// Throws Error when a kernel does not compile, with the compiler's words.
DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, int64_t rows,
                               Numerics numerics = Numerics::fast);

}  // namespace nodewright
