// The nanoGPT model as plans: a prompt, and one decode step. As the article has it: attention over a static cache,
// LayerNorm before each block, GELU between the halves of the feed-forward block.
#pragma once

#include <vector>

#include "examples/nanogpt/kernels/dense_attend.h"
#include "examples/nanogpt/kernels/embed_positions.h"
#include "examples/nanogpt/kernels/layer_norm_project.h"
#include "examples/nanogpt/kernels/project_bias_add.h"
#include "examples/nanogpt/nanogpt_state.h"
#include "examples/nanogpt/nanogpt_weights.h"
#include "graph/graph_builder.h"
#include "kernels_src/sampling/sample.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

// The kernels, launched for `rows` tokens at once; the logits and the choice are those of the last of them.
struct NanogptKernels {
  int64_t rows = 1;
  Kernel<EmbedPositions<float>> embed;
  Kernel<LayerNormProject<float>> norm_qkv;
  Kernel<DenseAttend> attend;
  Kernel<ProjectBiasAdd<float>> out;
  Kernel<LayerNormProject<float>> norm_up;
  Kernel<ProjectBiasAdd<float>> down;
  Kernel<LayerNormProject<float>> norm_logits;
  Kernel<Sample> sample;
};

// Compiles or loads them. Throws Error when a kernel does not compile, with the compiler's words. The code is the same
// for every number of rows.
NanogptKernels nanogpt_kernels(KernelCache& cache, const NanogptConfig& config, int64_t rows);

// "nanogpt.prompt<rows>": copies the host's inputs, puts prompt[0, rows) into the cache, and chooses the next token.
// "nanogpt.step": puts that token into the cache at the position after the last, and chooses the next.
// Both leave the choice in last_token and in pinned memory. Everything is borrowed and must outlive the plan's runs.
Plan nanogpt_prompt_plan(Device& device, const NanogptWeights& weights, const NanogptKernels& kernels,
                         const NanogptState& state, EdgePolicy policy);
Plan nanogpt_step_plan(Device& device, const NanogptWeights& weights, const NanogptKernels& kernels,
                       const NanogptState& state, EdgePolicy policy);

}  // namespace nodewright
