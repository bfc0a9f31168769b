// The kernels of a decode plan, specialised for one model, bucket and device: a network, lowered and loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels_src/step/advance.h"
#include "kernels_src/step/fetch_inputs.h"
#include "models/config/model_config.h"
#include "models/lowering/lowering.h"
#include "models/step/step_shape.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

struct DecoderKernels {
  // A run of operations with its kernels.
  struct Run {
    LoweredRun lowered;
    LoadedRun loaded;
    void emit(EmitContext& e) const { lowered.emit(loaded, e); }
  };

  StepShape shape = 1;
  ResidualForm form = ResidualForm::plain;
  std::vector<Run> first, last;
  std::vector<std::vector<Run>> kinds;  // of layers; empty for those that the stage has none of
  std::vector<size_t> layers;           // the kind of each; of a stage its own
  Kernel<FetchInputs> fetch_inputs;     // its shape follows from the inputs' size; empty but in the first stage
  Kernel<Advance> advance;              // empty where a launch is one step
  std::vector<std::string> untaken;     // why a library's product is not as the tuning says

  // The runs of a layer, by its kind.
  const std::vector<Run>& of_layer(int64_t layer) const { return kinds[layers[static_cast<size_t>(layer)]]; }
};

// What decoder_kernels will ask the cache for: to be prepared for several buckets in parallel first.
std::vector<KernelRequest> decoder_kernel_requests(KernelCache& cache, const ModelConfig& config,
                                                   const StepShape& shape);

// Throws Error when a kernel does not compile, with the compiler's words, and where a step of products is asked for and
// there is no cuBLASLt.
DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, const StepShape& shape);

// The operations of the network, for each the kernel that was chosen for a step of this shape, and why the rows of the
// table before it were not.
std::string lowering_text(KernelCache& cache, const ModelConfig& config, const StepShape& shape);

}  // namespace nodewright
