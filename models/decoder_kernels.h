// The kernels of a decode plan, specialised for one model, bucket and device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels_src/attend.h"
#include "kernels_src/embed.h"
#include "kernels_src/norm_gate_up.h"
#include "kernels_src/norm_project.h"
#include "kernels_src/project_add.h"
#include "kernels_src/rope_append.h"
#include "kernels_src/sample.h"
#include "models/model_config.h"
#include "runtime/kernel_cache.h"

namespace nodewright {

struct DecoderKernels {
  Kernel<Embed> embed;
  Kernel<NormProject> norm_qkv;
  Kernel<RopeAppend> rope_append;
  Kernel<Attend> attend;
  Kernel<ProjectAdd> attention_out;
  Kernel<NormGateUp> norm_gate_up;
  Kernel<ProjectAdd> down;
  Kernel<NormProject> norm_logits;
  Kernel<Sample> sample;
};

// What decoder_kernels will ask the cache for: to be prepared for several buckets in parallel first.
std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, int64_t rows, int sm_count);

// Throws Error when a kernel does not compile, with the compiler's words.
DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, int64_t rows);

}  // namespace nodewright
