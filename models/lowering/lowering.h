// Lowers the operations of a network to kernels. Matrix products are lowered by patterns and engines (product.h), all
// other operations by the rows of a table (lowering_rows.h). The first engine or row that can lower the next operations
// does. A kernel for another operation needs its .cu, its .h, and a row in lowering.cpp and lowering_rows.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/lowering/emit_context.h"
#include "models/network/network.h"
#include "models/step/step_shape.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

// What the choice of kernels depends on besides the operations.
struct LoweringContext {
  const ModelConfig& config;
  const StepShape& step;
  const DeviceProperties& device;
  // Clusters of `blocks` blocks that run at once, each block alone on its SM. Empty: as many as the SMs have room for.
  std::function<int64_t(int64_t blocks)> clusters = {};

  int64_t clusters_of(int64_t blocks) const { return clusters ? clusters(blocks) : device.sm_count / blocks; }
};

// The form in which kernels leave the residual, the same in a whole step.
//   plain     the residual itself, in fp32
//   gained    the residual times the gain of the next norm, in bf16, with the sums of its squares: the kernel that
//   norms
//             it reads half the bytes
//   deferred  the residual before the block and the block's output: the kernel that reads them norms and adds the
//   output
enum class ResidualForm : uint8_t { plain, gained, deferred };
std::string_view to_string(ResidualForm form);  // "gained"

// A kernel that has been chosen: its request, and how it is launched.
struct KernelChoice {
  KernelRequest request;
  LaunchShape shape;
  uint64_t args_bytes = 0;    // size of its argument struct
  bool of_attention = false;  // the step's split of L1 into cache and shared memory (SharedTuning) is not set for it
};
template <KernelArgs A>
KernelChoice kernel_choice(KernelRequest request, const LaunchShape& shape) {
  return {std::move(request), shape, sizeof(A), false};
}

// A product that a library computes: y = alpha * x . W^T + beta * y, with rows of y `y_stride` apart.
struct ProductChoice {
  std::string name;
  int64_t rows = 0, cols = 0, outputs = 0;
  Element output = Element::f32;
  int64_t y_stride = 0;
  ProductTuning tuning;
  float beta = 0;
  float alpha = 1;
};

// The loaded kernels of one LoweredRun.
struct LoadedRun {
  std::vector<std::pair<const LoadedKernel*, LaunchShape>> kernels;  // in the order of LoweredRun::kernels
  std::vector<std::shared_ptr<const MatmulPlan>> products;           // in the order of LoweredRun::products

  template <KernelArgs A>
  Kernel<A> kernel(size_t i = 0) const {
    return {kernels.at(i).first, kernels.at(i).second};
  }
};

// Consecutive operations that have been lowered together.
struct LoweredRun {
  size_t operations = 0;  // how many
  std::vector<KernelChoice> kernels = {};
  std::vector<ProductChoice> products = {};
  Emit emit = {};
};
// A lowered run, or why a row or engine cannot lower the operations; an empty text where it is for other operations.
using LoweringResult = std::variant<std::string, LoweredRun>;

// For --why: what was chosen for one run of operations, and why earlier rows were not.
struct LoweringNote {
  std::string operations;  // "norm product attention_norm qkv"
  std::string_view row;
  std::vector<std::string> kernels;                              // to_string of the requests, or "product NAME"
  std::vector<std::pair<std::string_view, std::string>> passed;  // rows that could not, with the reason
  bool operator==(const LoweringNote&) const = default;
};

// A whole step, before anything is compiled.
struct LoweredStep {
  ResidualForm form = ResidualForm::plain;
  std::vector<LoweredRun> first, last;
  std::vector<std::vector<LoweredRun>> kinds;  // of layers
  std::vector<size_t> layers;                  // [layers of all stages] the kind of each
  std::vector<std::pair<ResidualForm, std::string>>
      forms_passed;                 // forms that were tried before, and the operations that have no kernel for them
  std::vector<LoweringNote> notes;  // of first, kinds and last, in this order, each once
};
// Throws Error where no row takes an operation.
LoweredStep lower(const Network& network, const LoweringContext& at);

// ---- For models/lowering/lower_*.cpp

// Whether the first operations are of these kinds.
bool begins(std::span<const Op> ops, std::initializer_list<OpKind> kinds);
const ProjectionTuning& tuning_of(const StepTuning& tuning, Part part);
std::string node_name(const Op& product);  // "qkv", "up"
template <class E>
Constant constant(const char* name, E value) {
  return {name, static_cast<int64_t>(value)};
}

// The constant for a factor, its bits as a float, or 0 for a factor of 1; and for a cap likewise, or 0 for none.
Constant factor_constant(const char* name, float factor);
Constant cap_constant(const char* name, float cap);
// The constants kScale and kCap of a product that computes logits; and of one that does not.
std::vector<Constant> logit_constants(const ModelConfig& config);
std::vector<Constant> unscaled_constants();

}  // namespace nodewright
