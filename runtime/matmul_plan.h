// One matrix product, prepared: y = alpha * op(a) . op(b) (+ beta * c) (+ bias), with its algorithm and workspace
// chosen once, outside any capture. On a CUDA device cuBLASLt computes it; on the CPU driver our reference product.
//
//   const MatmulPlanner products(device, kernels);
//   const auto plan = products.plan("qkv", {.m = rows, .n = 3072, .k = 2048, .transpose_b = true});
//   g.product("qkv", plan, {.a = x, .b = w.qkv, .y = qkv, .workspace = scratch});       // graph/graph_builder.h
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_src/projection/reference_product.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/libraries/matmul_config.h"
#include "runtime/libraries/matmul_library.h"

namespace nodewright {

// "bf16", "fp16" or "f32"; and the bytes of one.
std::string_view to_string(Element element);
constexpr uint64_t bytes_of(Element element) { return element == Element::f32 ? 4 : 2; }

// All matrices in row-major order: a is transposed where transpose_a says so, b where transpose_b does. op(a) is [m,
// k], op(b) is [k, n], y and c are [m, n]; a transposed matrix is stored the other way round, so a weight of [n, k] has
// transpose_b.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Element inputs = Element::bf16;              // of a and b
  Element output = Element::bf16;              // of c, bias and y: as the inputs, or f32
  int64_t lda = 0, ldb = 0, ldc = 0, ldy = 0;  // elements between two stored rows; 0: they touch; ldc: as ldy
  float alpha = 1.0f, beta = 0.0f;             // alpha * op(a) . op(b) + beta * c; without an operand c, beta * y
  bool bias = false;                           // [n], added to every row
  bool operator==(const MatmulShape&) const = default;
};

// "16x3072x2048 bf16, b transposed, + bias"
std::string to_string(const MatmulShape& shape);

// How a product is chosen.
struct MatmulOptions {
  // cuBLAS's documentation recommends 32 MiB on Hopper (cublasSetWorkspace, "Recommended cuBLAS workspace size").
  uint64_t workspace_limit_bytes = uint64_t{32} << 20;
  uint64_t alignment_bytes = 16;  // of every operand's address; a power of two
  int candidate = 0;              // which of the algorithms that the heuristics propose, the best first
  // This one instead: MatmulPlan::algorithm() of an earlier plan, of this or of another shape.
  std::optional<cublaslt::Algorithm> algorithm;
  std::optional<MatmulConfig> config;  // or the first one of these numbers among kMostMatmulProposals
};

// Algorithms that the heuristics are asked for where one is looked for among them.
inline constexpr int kMostMatmulProposals = 32;

// Device addresses, as MatmulShape has them: a, b, c, bias, y. c is 0 when beta adds to y itself, bias when there is
// none, workspace when it needs no bytes.
struct MatmulOperands {
  uint64_t a = 0, b = 0, c = 0, bias = 0, y = 0, workspace = 0;
};

// cublaslt: NVIDIA's library. reference: kernels_src/projection/reference_product.cu.
enum class MatmulBackend : uint8_t { cublaslt, reference };

// The bytes that each operand spans from its address on. With a leading dimension larger than a row, the bytes between
// rows are inside the span and never touched.
struct MatmulSpans {
  uint64_t a = 0, b = 0, c = 0, bias = 0, y = 0, workspace = 0;  // 0: not used
};

// Immutable and thread-safe. Made by MatmulPlanner.
class MatmulPlan {
 public:
  ~MatmulPlan();
  MatmulPlan(const MatmulPlan&) = delete;
  MatmulPlan& operator=(const MatmulPlan&) = delete;

  const std::string& name() const { return name_; }              // for errors
  const MatmulShape& shape() const { return shape_; }            // with leading dimensions filled in
  MatmulBackend backend() const { return backend_; }             // which of them computes
  Device& device() const { return device_; }                     // it was made for
  uint64_t workspace_bytes() const { return workspace_bytes_; }  // that a call needs; perhaps 0
  uint64_t alignment_bytes() const { return alignment_bytes_; }  // of every operand's address
  MatmulSpans spans() const;                                     // bytes of each operand
  uint64_t flops() const;                                        // 2 m n k

  // cuBLASLt only: the algorithm's 64 bytes, good for the same library version; its numbers; and in words, "cuBLASLt
  // 130100, algorithm 66, tile 10, stages 35, split-K 3". The reference says "reference product".
  const cublaslt::Algorithm& algorithm() const { return algorithm_; }
  MatmulConfig config() const;
  std::string describe() const;

  // Submits the product. cuBLASLt: one library call, which launches kernels of its own and can be captured.
  // Throws Error with the operand that is missing or not aligned.
  void submit(const MatmulOperands& operands, CUstream stream) const;

  // Reference only: the arguments of the one kernel that computes the product.
  ReferenceProduct reference_arguments(const MatmulOperands& operands) const;

 private:
  friend class MatmulPlanner;
  struct Descriptors;

  MatmulPlan(Device& device, std::string name, const MatmulShape& shape, const MatmulOptions& options,
             MatmulBackend backend);
  void choose_algorithm(std::shared_ptr<const MatmulLibrary> library, const MatmulOptions& options);
  // Asks the library of choose_algorithm() for at most `most`.
  std::vector<cublaslt::HeuristicResult> proposed(const MatmulOptions& options, int most) const;
  std::string numbers_of(const MatmulOptions& options) const;
  void check_operands(const MatmulOperands& operands) const;

  Device& device_;
  std::string name_;
  MatmulShape shape_;  // leading dimensions filled in
  MatmulBackend backend_;
  uint64_t alignment_bytes_;
  uint64_t workspace_bytes_ = 0;
  std::shared_ptr<const MatmulLibrary> library_;
  cublaslt::Algorithm algorithm_{};
  std::unique_ptr<Descriptors> descriptors_;
  Kernel<ReferenceProduct> reference_;
};

// Makes the products of one device. The device and the kernel cache must outlive the planner and its plans.
class MatmulPlanner {
 public:
  // On a CUDA device loads cuBLASLt; throws Error where there is none. Never falls back: the reference product on a
  // CUDA device has to be asked for, and the CPU driver has nothing else.
  MatmulPlanner(Device& device, KernelCache& kernels);
  MatmulPlanner(Device& device, KernelCache& kernels, MatmulBackend backend);
  // With a library that is open already.
  MatmulPlanner(Device& device, KernelCache& kernels, std::shared_ptr<const MatmulLibrary> library);

  // Asks the heuristics, once; not under stream capture. Throws Error for a shape that is impossible, and where no
  // algorithm fits shape, alignment and workspace. `name` is what errors call the product.
  std::shared_ptr<const MatmulPlan> plan(std::string name, const MatmulShape& shape,
                                         const MatmulOptions& options = {}) const;

  // The algorithms that the heuristics propose for a plan's product, the best first, each once; of the reference none.
  std::vector<MatmulConfig> proposals(const MatmulPlan& plan) const;

  // The backend of every plan.
  MatmulBackend backend() const { return library_ ? MatmulBackend::cublaslt : MatmulBackend::reference; }

 private:
  Device& device_;
  KernelCache& kernels_;
  std::shared_ptr<const MatmulLibrary> library_;  // null: the reference
};

}  // namespace nodewright
