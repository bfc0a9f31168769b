// The kernels of a decode plan, specialised for one model, bucket and device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels_src/advance.h"
#include "kernels_src/attend.h"
#include "kernels_src/attend_tiles.h"
#include "kernels_src/embed.h"
#include "kernels_src/gate.h"
#include "kernels_src/norm_add.h"
#include "kernels_src/norm_gate_up.h"
#include "kernels_src/norm_hidden.h"
#include "kernels_src/norm_project.h"
#include "kernels_src/norm_rows.h"
#include "kernels_src/project.h"
#include "kernels_src/project_add.h"
#include "kernels_src/rope_append.h"
#include "kernels_src/rope_flash_decode.h"
#include "kernels_src/sample.h"
#include "models/decode_state.h"
#include "models/model_config.h"
#include "models/step_shape.h"
#include "runtime/kernel_cache.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

// How a block ends: with a kernel that adds to the residual or, in a family with post norms, one that leaves what it
// projects to the next kernel that reads the residual. Behind a product that one is norm_add. The others are not
// compiled.
struct OutputKernels {
  Kernel<ProjectAdd> project_add;
  Kernel<Project> project;
  Kernel<NormAdd> norm_add;
};

// What a step of library products has in place of the fused projections: see StepShape. The plans of the layers are
// null where their projections are tiles all the same (StepShape::may_hold).
struct ProductKernels {
  Kernel<NormRows> norm, norm_sampled;  // of all rows; of those that choose
  Kernel<AttendTiles> attend_tiles;
  Kernel<Gate> gate;
  std::shared_ptr<const MatmulPlan> qkv, out, gate_up, down, head;
};

// The kernels of the projections take the same arguments in tiles (tile_norm_project, ...): see StepShape::takes_tiles.
// With products of a layer norm_qkv, norm_gate_up and project(_add) are empty, attend is for the rows that choose only,
// and norm_logits is empty where the head is a product. Where all rows attend one by one
// (StepShape::takes_rope_flash_decode) rope_flash_decode stands for rope_append and attend.
struct DecoderKernels {
  StepShape shape = 1;
  ProductKernels products;
  Kernel<Embed> embed;
  Kernel<NormProject> first_norm_qkv, norm_qkv;  // of the first layer, before which no block is; of the others
  Kernel<RopeAppend> rope_append;
  Kernel<Attend> attend;
  Kernel<RopeFlashDecode> rope_flash_decode;
  OutputKernels attention_out;
  Kernel<NormGateUp> norm_gate_up;
  OutputKernels down;
  Kernel<NormProject> norm_logits;
  // In steps of tiles whose norm is an RMS norm of a hidden size that is a multiple of 8, without post norms: embed and
  // the kernels that end a block leave the residual times the gain of the norm that comes next. `head_gained`:
  // norm_logits takes it, too.
  bool gained = false, head_gained = false;
  uint64_t head_parts = 0;         // of a row's logits, of each of which norm_logits leaves the largest; 0: it does not
  Kernel<NormHidden> norm_hidden;  // empty where no hidden states leave the step
  Kernel<Sample> sample;
  Kernel<Advance> advance;  // empty where a launch is one step
};

// What decoder_kernels will ask the cache for: to be prepared for several buckets in parallel first.
std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, const StepShape& shape,
                                                   const DeviceProperties& device);

// Throws Error when a kernel does not compile, with the compiler's words, and where a step of products is asked for and
// there is no cuBLASLt.
DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, const StepShape& shape);

}  // namespace nodewright
