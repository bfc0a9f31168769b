// cuBLASLt's entries with our reference kernel behind them: column-major as the real one, and capturable, so that what
// is built around the library is tested on the CPU driver. One at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "runtime/matmul_plan.h"

namespace nodewright::test {

class FakeCublasLt {
 public:
  explicit FakeCublasLt(Device& device, KernelCache& kernels) : device_(device), kernels_(kernels) { current() = this; }
  ~FakeCublasLt() { current() = nullptr; }
  FakeCublasLt(const FakeCublasLt&) = delete;
  FakeCublasLt& operator=(const FakeCublasLt&) = delete;

  std::shared_ptr<const MatmulLibrary> library() const {
    return MatmulLibrary::with_entries(
        {.GetVersion = get_version,
         .GetStatusName = [](Status) { return "FAKE_STATUS"; },
         .Create = [](cublaslt::Handle* handle) { return *handle = current(), ++current()->handles, 0; },
         .Destroy = [](cublaslt::Handle) { return --current()->handles, 0; },
         .MatmulDescCreate = create_operation,
         .MatmulDescDestroy = [](void* made) { return destroy<Operation>(made); },
         .MatmulDescSetAttribute = set_operation,
         .MatrixLayoutCreate = create_layout,
         .MatrixLayoutDestroy = [](void* made) { return destroy<Layout>(made); },
         .MatmulPreferenceCreate = [](void** made) { return *made = current(), 0; },
         .MatmulPreferenceDestroy = [](void*) { return 0; },
         .MatmulPreferenceSetAttribute = [](void*, int, const void*, size_t) { return 0; },
         .MatmulAlgoGetHeuristic = propose,
         .MatmulAlgoCheck = check,
         .MatmulAlgoConfigGetAttribute = get_config,
         .Matmul = multiply},
        "fake cuBLASLt");
  }

  size_t version = 990000;
  int kernels_per_product = 1;  // 2: as a split-K algorithm, whose capture is two nodes
  uint64_t workspace_bytes = 64;
  int products = 0;                 // calls so far
  int layouts = 0;                  // descriptors alive
  int handles = 0;                  // made here and alive
  cublaslt::Handle used = nullptr;  // by the last product

 private:
  using Status = cublaslt::Status;
  static constexpr Status kInvalidValue = 7, kNotSupported = 15;  // cublasStatus_t
  static constexpr int kProposals = 3;
  static constexpr uint64_t kMark = 0xfa4e;  // words[0] of every algorithm

  struct Layout {
    int type;
    int64_t rows, columns, ld;  // column-major
    bool operator==(const Layout&) const = default;
  };
  struct Operation {
    bool transpose_a = false, transpose_b = false;
    uint64_t bias = 0;
  };

  static FakeCublasLt*& current() {
    static FakeCublasLt* made = nullptr;
    return made;
  }
  static size_t get_version() { return current()->version; }

  template <class T>
  static Status destroy(void* made) {
    delete static_cast<T*>(made);
    --current()->layouts;
    return 0;
  }
  static Status create_layout(void** made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    if (ld < static_cast<int64_t>(rows)) return kInvalidValue;
    *made = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
    ++current()->layouts;
    return 0;
  }
  static Status create_operation(void** made, int compute, int scale) {
    if (compute != cublaslt::kCompute32f || scale != cublaslt::kR32f) return kNotSupported;
    *made = new Operation;
    ++current()->layouts;
    return 0;
  }
  static Status set_operation(void* made, int attribute, const void* value, size_t) {
    auto& operation = *static_cast<Operation*>(made);
    int32_t word = 0;
    std::memcpy(&word, value, sizeof word);
    if (attribute == cublaslt::kDescTransA) operation.transpose_a = word == cublaslt::kOpT;
    if (attribute == cublaslt::kDescTransB) operation.transpose_b = word == cublaslt::kOpT;
    if (attribute == cublaslt::kDescBiasPointer) std::memcpy(&operation.bias, value, sizeof operation.bias);
    return 0;
  }

  static bool fits(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const auto turned = [](const Layout& layout, bool transpose) {
      return transpose ? std::pair(layout.columns, layout.rows) : std::pair(layout.rows, layout.columns);
    };
    const auto [m, k] = turned(a, operation.transpose_a);
    const auto [k2, n] = turned(b, operation.transpose_b);
    return k == k2 && d.rows == m && d.columns == n && c.rows == m && c.columns == n && a.type == b.type &&
           c.type == d.type;
  }
  static Status propose(void*, void* operation, void* a, void* b, void* c, void* d, void*, int wanted,
                        cublaslt::HeuristicResult* results, int* found) {
    if (!fits(*static_cast<Operation*>(operation), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
              *static_cast<Layout*>(c), *static_cast<Layout*>(d)))
      return kInvalidValue;
    *found = std::min(wanted, kProposals);
    for (int i = 0; i < *found; ++i)
      results[i] = {.algorithm = {{kMark, static_cast<uint64_t>(i)}}, .workspace_bytes = current()->workspace_bytes};
    return 0;
  }
  static Status check(void*, void*, void*, void*, void*, void*, const cublaslt::Algorithm* algorithm,
                      cublaslt::HeuristicResult* result) {
    if (algorithm->words[0] != kMark) return kNotSupported;
    *result = {.algorithm = *algorithm, .workspace_bytes = current()->workspace_bytes};
    return 0;
  }
  static Status get_config(const cublaslt::Algorithm* algorithm, int attribute, void* value, size_t bytes, size_t*) {
    const bool is_short = attribute == cublaslt::kConfigInnerShape || attribute == cublaslt::kConfigClusterShape;
    if (bytes != (is_short ? 2 : 4)) return kInvalidValue;
    const bool is_numbered = attribute == cublaslt::kConfigId || attribute == cublaslt::kConfigClusterShape;
    const auto number = static_cast<int32_t>(is_numbered ? algorithm->words[1] : 0);
    std::memcpy(value, &number, bytes);
    return 0;
  }

  // d = alpha * op(a) . op(b) + beta * c + bias in column-major order is the row-major product of the transposes.
  static Status multiply(void* handle, void* operation_, const void* alpha, const void* a_, void* la, const void* b_,
                         void* lb, const void* beta, const void* c_, void* lc, void* d_, void* ld,
                         const cublaslt::Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                         CUstream stream) {
    FakeCublasLt& self = *current();
    self.used = handle;
    const auto& operation = *static_cast<Operation*>(operation_);
    const auto &a = *static_cast<Layout*>(la), &b = *static_cast<Layout*>(lb), &c = *static_cast<Layout*>(lc),
               &d = *static_cast<Layout*>(ld);
    if (!fits(operation, a, b, c, d) || algorithm->words[0] != kMark || workspace_bytes < self.workspace_bytes ||
        (self.workspace_bytes != 0 && workspace == nullptr))
      return kInvalidValue;
    const auto in = [](const void* data, const Layout& layout) {
      return In<uint8_t>{static_cast<const uint8_t*>(data), bytes(layout)};
    };
    ReferenceProduct args{.a = in(b_, b),
                          .b = in(a_, a),
                          .c = c_ == d_ ? In<uint8_t>{} : in(c_, c),
                          .bias = {reinterpret_cast<const uint8_t*>(operation.bias),
                                   operation.bias == 0 ? 0 : static_cast<uint64_t>(d.rows) * element_bytes(d.type)},
                          .y = {static_cast<uint8_t*>(d_), bytes(d)},
                          .m = d.columns,
                          .n = d.rows,
                          .k = operation.transpose_a ? a.rows : a.columns,
                          .a_row = operation.transpose_b ? 1 : b.ld,
                          .a_column = operation.transpose_b ? b.ld : 1,
                          .b_row = operation.transpose_a ? 1 : a.ld,
                          .b_column = operation.transpose_a ? a.ld : 1,
                          .c_row = c.ld,
                          .y_row = d.ld,
                          .alpha = *static_cast<const float*>(alpha),
                          .beta = *static_cast<const float*>(beta)};
    ++self.products;
    for (int i = 0; i < self.kernels_per_product; ++i)
      if (const Status status = self.launch(a.type, d.type, args, stream); status != 0) return status;
    return 0;
  }

  Status launch(int input_type, int output_type, ReferenceProduct& args, CUstream stream) {
    const auto kernel = kernels_.kernel<ReferenceProduct>(
        {"reference_product", {{"kInput", element_number(input_type)}, {"kOutput", element_number(output_type)}}},
        reference_product_shape(args.m, args.n));
    void* argument = &args;
    CUlaunchConfig config{};
    config.gridDimX = kernel.shape.grid[0];
    config.blockDimX = kernel.shape.block[0];
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    return device_.driver().cuLaunchKernelEx(&config, kernel.loaded->function, &argument, nullptr) == CUDA_SUCCESS ? 0
                                                                                                                   : 13;
  }

  static int64_t element_number(int type) {
    return static_cast<int64_t>(type == cublaslt::kR32f   ? Element::f32
                                : type == cublaslt::kR16f ? Element::fp16
                                                          : Element::bf16);
  }
  static uint64_t element_bytes(int type) { return type == cublaslt::kR32f ? 4 : 2; }
  static uint64_t bytes(const Layout& layout) {
    return static_cast<uint64_t>((layout.columns - 1) * layout.ld + layout.rows) * element_bytes(layout.type);
  }

  Device& device_;
  KernelCache& kernels_;
};

}  // namespace nodewright::test
