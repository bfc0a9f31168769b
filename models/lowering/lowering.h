// From operations to kernels: the products of models/lowering/product.h, each a pattern of operations with the engines
// that multiply it, and a table of rows for all else. The first engine or row that can take the next operations does. A
// new kernel of another operation needs its .cu, its .h, and a row in lowering.cpp and lowering_rows.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/lowering/emission.h"
#include "models/network/network.h"
#include "models/step/step_shape.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

// What the choice of kernels depends on, beside the operations.
struct Situation {
  const ModelConfig& config;
  const StepShape& step;
  const DeviceProperties& device;
};

// The form in which the residual goes from block to block, the same for a whole step. plain: as it is. gained: times
// the gain of the norm that comes next, beside its squares, so that no block reads rows in fp32. deferred: what a block
// adds is left to the kernel that reads the residual next, which norms it (post norms).
enum class Travel : uint8_t { plain, gained, deferred };
std::string_view to_string(Travel travel);  // "gained"

// A kernel as it will be asked for and launched.
struct KernelChoice {
  KernelRequest request;
  LaunchShape shape;
  uint64_t args_bytes = 0;    // of its argument struct
  bool of_attention = false;  // which keeps its own division of L1 (SharedTuning)
};
template <KernelArgs A>
KernelChoice kernel_choice(KernelRequest request, const LaunchShape& shape) {
  return {std::move(request), shape, sizeof(A), false};
}

// A library's product x . W^T of `rows` rows, into rows `y_stride` apart; beta 1 adds to y.
struct ProductChoice {
  std::string name;
  int64_t rows = 0, cols = 0, outputs = 0;
  Element output = Element::f32;
  int64_t y_stride = 0;
  ProductTuning tuning;
  float beta = 0;
  float alpha = 1;
};

// The kernels of one run of operations, loaded.
struct LoadedRun {
  std::vector<std::pair<const LoadedKernel*, LaunchShape>> kernels;  // in the order of Lowered::kernels
  std::vector<std::shared_ptr<const MatmulPlan>> products;           // in the order of Lowered::products

  template <KernelArgs A>
  Kernel<A> kernel(size_t i = 0) const {
    return {kernels.at(i).first, kernels.at(i).second};
  }
};

// What a row makes of a run of operations.
struct Lowered {
  size_t operations = 0;  // how many it takes
  std::vector<KernelChoice> kernels = {};
  std::vector<ProductChoice> products = {};
  Emit emit = {};
};
// Or why it takes none; empty where it is for other operations.
using Attempt = std::variant<std::string, Lowered>;

// What was chosen for one run of operations, and why the rows before it were not.
struct LoweringNote {
  std::string operations;  // "norm product attention_norm qkv"
  std::string_view row;
  std::vector<std::string> kernels;                              // to_string of the requests, or "product NAME"
  std::vector<std::pair<std::string_view, std::string>> passed;  // rows that could not, with the reason
  bool operator==(const LoweringNote&) const = default;
};

// A whole step, before anything is compiled.
struct LoweredStep {
  Travel travel = Travel::plain;
  std::vector<Lowered> first, last;
  std::vector<std::vector<Lowered>> kinds;  // of layers
  std::vector<size_t> layers;               // [layers of all stages] the kind of each
  std::vector<std::pair<Travel, std::string>>
      ways_passed;                  // ways of the residual that were tried before, and what stopped them
  std::vector<LoweringNote> notes;  // of first, kinds and last, in this order; what kinds share once
};
// Throws Error where no row takes an operation.
LoweredStep lower(const Network& network, const Situation& at);

// ---- For what lowers operations, in models/lowering/lower_*.cpp

// Whether `ops` begin with these.
bool begins(std::span<const Op> ops, std::initializer_list<OpKind> kinds);
const ProjectionTuning& tuning_of(const StepTuning& tuning, Part part);
std::string node_name(const Op& product);  // "qkv", "up"
template <class E>
Constant constant(const char* name, E value) {
  return {name, static_cast<int64_t>(value)};
}

// The bits of a factor, 0 for 1, and of a cap, 0 for none.
Constant factor_constant(const char* name, float factor);
Constant cap_constant(const char* name, float cap);
// The constants of a projection that makes logits.
std::vector<Constant> logit_constants(const ModelConfig& config);
std::vector<Constant> unscaled_constants();

}  // namespace nodewright
