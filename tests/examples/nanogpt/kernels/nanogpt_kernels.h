// The network's own kernels for tests: a cache that knows their sources, and those of GPT-2's widths.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "examples/nanogpt/kernels/dense_attend.h"
#include "examples/nanogpt/kernels/projection_shape.h"
#include "examples/nanogpt/nanogpt_sources.h"
#include "tests/kernels/machine.h"
#include "tests/kernels/shipped_kernels.h"

namespace nodewright::test {

// machine().kernels, with the sources.
inline KernelCache& nanogpt_kernel_cache() {
  add_nanogpt_sources(machine().kernels);
  return machine().kernels;
}

// Hidden sizes of the article's model, of GPT-2 and of GPT-2 XL, in bf16 and float.
inline ShippedKernels nanogpt_kernels_on(const Card& card) {
  ShippedKernels kernels;
  const auto add = [&](const char* name, std::vector<Constant> constants) {
    const KernelRequest request{name, std::move(constants)};
    kernels.try_emplace(kernel_key(card, request), ShippedKernel{card, request, {}, nanogpt_sources()});
  };
  for (const int64_t weight_bytes : {2, 4}) {
    add("embed_positions", {{"kWeightBytes", weight_bytes}});
    for (const int64_t hidden : {32, 768, 1600})
      for (const int64_t cols : {hidden, 4 * hidden}) {
        const ProjectionShape shape{1, cols, 1, weight_bytes};
        std::vector<Constant> constants{{"kCols", cols},
                                        {"kWeightBytes", weight_bytes},
                                        {"kLanes", shape.lanes()},
                                        {"kThreads", ProjectionShape::kThreads}};
        add("project_bias_add", constants);
        if (cols != hidden) continue;
        constants.push_back({"kActivation", 0});
        for (const Activation f : {Activation::none, Activation::gelu_erf, Activation::gelu_tanh}) {
          constants.back().value = static_cast<int64_t>(f);
          add("layer_norm_project", constants);
        }
      }
  }
  for (const auto& [heads, head_dim] : {std::pair<int64_t, int64_t>{4, 8}, {12, 64}})
    add("dense_attend",
        {{"kHeads", heads}, {"kHeadDim", head_dim}, {"kSlices", DenseAttendShape{.head_dim = head_dim}.slices()}});
  return kernels;
}

}  // namespace nodewright::test
