#include "runtime/matmul_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/context_guard.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// Strides must not overflow when multiplied, and cuBLASLt's leading dimensions are 64 bits but its sizes
// practically 32.
constexpr int64_t kMostElementsOfAnEdge = int64_t{1} << 31;

int library_type(Element element) {
  switch (element) {
    case Element::f32:
      return cublaslt::kR32f;
    case Element::fp16:
      return cublaslt::kR16f;
    case Element::bf16:
      return cublaslt::kR16bf;
  }
  return cublaslt::kR32f;
}

// A stored matrix: rows of `columns` elements, `ld` elements apart.
struct Stored {
  int64_t rows, columns, ld;
  uint64_t bytes(Element element) const { return static_cast<uint64_t>((rows - 1) * ld + columns) * bytes_of(element); }
};

Stored stored_a(const MatmulShape& s) { return s.transpose_a ? Stored{s.k, s.m, s.lda} : Stored{s.m, s.k, s.lda}; }
Stored stored_b(const MatmulShape& s) { return s.transpose_b ? Stored{s.n, s.k, s.ldb} : Stored{s.k, s.n, s.ldb}; }

// Fills in the leading dimensions. Throws Error for sizes that make no product.
MatmulShape completed(const std::string& name, MatmulShape shape) {
  const auto refuse = [&](std::string detail, std::string advice) {
    throw Error({.doing = "plan product",
                 .object = name,
                 .detail = to_string(shape) + ": " + std::move(detail),
                 .advice = std::move(advice)});
  };
  for (const int64_t edge : {shape.m, shape.n, shape.k})
    if (edge < 1 || edge >= kMostElementsOfAnEdge)
      refuse("an edge of " + std::to_string(edge), "give m, n and k at least 1 and less than 2^31");
  if (shape.output != shape.inputs && shape.output != Element::f32)
    refuse("inputs " + std::string(to_string(shape.inputs)) + " and output " + std::string(to_string(shape.output)),
           "make the output as the inputs, or f32");
  const auto complete = [&](const char* which, int64_t& ld, int64_t columns) {
    if (ld == 0) ld = columns;
    if (ld < columns || ld >= kMostElementsOfAnEdge)
      refuse(std::string(which) + " = " + std::to_string(ld) + " for rows of " + std::to_string(columns) + " elements",
             "give at least the elements of a row");
  };
  complete("lda", shape.lda, stored_a(shape).columns);
  complete("ldb", shape.ldb, stored_b(shape).columns);
  complete("ldy", shape.ldy, shape.n);
  if (shape.ldc == 0) shape.ldc = shape.ldy;
  complete("ldc", shape.ldc, shape.n);
  return shape;
}

}  // namespace

std::string_view to_string(Element element) {
  switch (element) {
    case Element::f32:
      return "f32";
    case Element::fp16:
      return "fp16";
    case Element::bf16:
      return "bf16";
  }
  return "?";
}

std::string to_string(const MatmulShape& shape) {
  std::string text = std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k) + " " +
                     std::string(to_string(shape.inputs));
  if (shape.output != shape.inputs) text += " to " + std::string(to_string(shape.output));
  if (shape.transpose_a) text += ", a transposed";
  if (shape.transpose_b) text += ", b transposed";
  if (shape.alpha != 1.0f) text += ", alpha " + std::to_string(shape.alpha);
  if (shape.beta != 0.0f) text += ", beta " + std::to_string(shape.beta);
  if (shape.bias) text += ", + bias";
  return text;
}

std::string to_string(const MatmulConfig& c) {
  std::string text = "algorithm " + std::to_string(c.algorithm) + ", tile " + std::to_string(c.tile) + ", stages " +
                     std::to_string(c.stages) + ", split-K " + std::to_string(c.split_k);
  for (const auto& [what, number] : {std::pair{"reduction", c.reduction},
                                     {"swizzle", c.swizzle},
                                     {"custom", c.custom},
                                     {"inner", c.inner},
                                     {"cluster", c.cluster}})
    if (number != 0) text += std::string(", ") + what + " " + std::to_string(number);
  return text;
}

// cuBLASLt's matrices are column-major: it sees every stored matrix transposed, and computes y^T = op(b)^T . op(a)^T,
// so that its first operand is our b and its rows are our columns. Its bias runs along its rows: our [n].
struct MatmulPlan::Descriptors {
  Descriptors(std::shared_ptr<const MatmulLibrary> from, const std::string& name, const MatmulShape& s)
      : library(std::move(from)), name(name) {
    layout(first, s.inputs, stored_b(s));
    layout(second, s.inputs, stored_a(s));
    layout(c, s.output, {s.m, s.n, s.ldc});
    layout(y, s.output, {s.m, s.n, s.ldy});
  }
  ~Descriptors() {
    for (const cublaslt::MatrixLayout made : {first, second, c, y})
      if (made != nullptr) library->entries().MatrixLayoutDestroy(made);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  void layout(cublaslt::MatrixLayout& to, Element element, const Stored& stored) {
    library->check(
        library->entries().MatrixLayoutCreate(&to, library_type(element), static_cast<uint64_t>(stored.columns),
                                              static_cast<uint64_t>(stored.rows), stored.ld),
        "cublasLtMatrixLayoutCreate", "plan product", name);
  }

  std::shared_ptr<const MatmulLibrary> library;
  const std::string& name;
  cublaslt::MatrixLayout first = nullptr, second = nullptr, c = nullptr, y = nullptr;
};

namespace {

// What to compute. Holds the bias's address, and is therefore made for each call.
class Operation {
 public:
  Operation(const MatmulLibrary& library, const std::string& name, const MatmulShape& shape, uint64_t bias)
      : library_(library), name_(name) {
    library.check(library.entries().MatmulDescCreate(&descriptor_, cublaslt::kCompute32f, cublaslt::kR32f),
                  "cublasLtMatmulDescCreate", "plan product", name);
    const int32_t first = shape.transpose_b ? cublaslt::kOpT : cublaslt::kOpN;
    const int32_t second = shape.transpose_a ? cublaslt::kOpT : cublaslt::kOpN;
    set(cublaslt::kDescTransA, &first, sizeof first);
    set(cublaslt::kDescTransB, &second, sizeof second);
    if (!shape.bias) return;
    const uint32_t epilogue = cublaslt::kEpilogueBias;
    set(cublaslt::kDescEpilogue, &epilogue, sizeof epilogue);
    set(cublaslt::kDescBiasPointer, &bias, sizeof bias);
  }
  ~Operation() { library_.entries().MatmulDescDestroy(descriptor_); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  cublaslt::MatmulDesc get() const { return descriptor_; }

 private:
  void set(int attribute, const void* value, size_t bytes) {
    library_.check(library_.entries().MatmulDescSetAttribute(descriptor_, attribute, value, bytes),
                   "cublasLtMatmulDescSetAttribute", "plan product", name_, "attribute " + std::to_string(attribute));
  }

  const MatmulLibrary& library_;
  const std::string& name_;
  cublaslt::MatmulDesc descriptor_ = nullptr;
};

// What the library does not say is 0.
MatmulConfig config_of(const MatmulLibrary& library, const cublaslt::Algorithm& algorithm) {
  const auto number = [&](int attribute, size_t bytes = 4) -> int64_t {
    uint32_t value = 0;
    size_t written = 0;
    return library.entries().MatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, bytes, &written) == 0 ? value
                                                                                                               : 0;
  };
  return {.algorithm = number(cublaslt::kConfigId),
          .tile = number(cublaslt::kConfigTile),
          .stages = number(cublaslt::kConfigStages),
          .split_k = number(cublaslt::kConfigSplitK),
          .reduction = number(cublaslt::kConfigReduction),
          .swizzle = number(cublaslt::kConfigSwizzle),
          .custom = number(cublaslt::kConfigCustom),
          .inner = number(cublaslt::kConfigInnerShape, 2),
          .cluster = number(cublaslt::kConfigClusterShape, 2)};
}

// What the heuristics may choose from.
class Preference {
 public:
  Preference(const MatmulLibrary& library, const std::string& name, const MatmulOptions& options)
      : library_(library), name_(name) {
    library.check(library.entries().MatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate",
                  "plan product", name);
    set(cublaslt::kPreferenceWorkspaceBytes, &options.workspace_limit_bytes, sizeof(uint64_t));
    const auto alignment = static_cast<uint32_t>(options.alignment_bytes);
    for (const int which : {cublaslt::kPreferenceAlignmentA, cublaslt::kPreferenceAlignmentB,
                            cublaslt::kPreferenceAlignmentC, cublaslt::kPreferenceAlignmentD})
      set(which, &alignment, sizeof alignment);
  }
  ~Preference() { library_.entries().MatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublaslt::Preference get() const { return preference_; }

 private:
  void set(int attribute, const void* value, size_t bytes) {
    library_.check(library_.entries().MatmulPreferenceSetAttribute(preference_, attribute, value, bytes),
                   "cublasLtMatmulPreferenceSetAttribute", "plan product", name_,
                   "attribute " + std::to_string(attribute));
  }

  const MatmulLibrary& library_;
  const std::string& name_;
  cublaslt::Preference preference_ = nullptr;
};

}  // namespace

MatmulPlan::MatmulPlan(Device& device, std::string name, const MatmulShape& shape, const MatmulOptions& options,
                       MatmulBackend backend)
    : device_(device),
      name_(std::move(name)),
      shape_(completed(name_, shape)),
      backend_(backend),
      alignment_bytes_(options.alignment_bytes) {
  const uint64_t least = std::max(bytes_of(shape_.inputs), bytes_of(shape_.output));
  if (!std::has_single_bit(alignment_bytes_) || alignment_bytes_ < least)
    throw Error({.doing = "plan product",
                 .object = name_,
                 .detail = "an alignment of " + std::to_string(alignment_bytes_) + " bytes for elements of " +
                           std::to_string(least),
                 .advice = "give a power of two that is at least an element"});
}

MatmulPlan::~MatmulPlan() = default;

std::string MatmulPlan::numbers_of(const MatmulOptions& options) const {
  return to_string(shape_) + ", at most " + std::to_string(options.workspace_limit_bytes) +
         " workspace bytes, addresses aligned to " + std::to_string(alignment_bytes_);
}

std::vector<cublaslt::HeuristicResult> MatmulPlan::proposed(const MatmulOptions& options, int most) const {
  const ContextGuard current(device_);
  const Descriptors& d = *descriptors_;
  // An address with the promised alignment: heuristics look at a bias pointer's alignment, not at the memory.
  const Operation operation(*library_, name_, shape_, alignment_bytes_);
  const Preference preference(*library_, name_, options);
  std::vector<cublaslt::HeuristicResult> results(static_cast<size_t>(std::max(most, 1)));
  int found = 0;
  library_->check(library_->entries().MatmulAlgoGetHeuristic(library_->handle(device_), operation.get(), d.first,
                                                             d.second, d.c, d.y, preference.get(),
                                                             static_cast<int>(results.size()), results.data(), &found),
                  "cublasLtMatmulAlgoGetHeuristic", "choose an algorithm for product", name_, numbers_of(options),
                  "allow a larger workspace or promise a larger alignment");
  results.resize(static_cast<size_t>(found));
  return results;
}

void MatmulPlan::choose_algorithm(std::shared_ptr<const MatmulLibrary> library, const MatmulOptions& options) {
  const ContextGuard current(device_);
  library_ = std::move(library);
  descriptors_ = std::make_unique<Descriptors>(library_, name_, shape_);
  if (options.algorithm) {
    const Descriptors& d = *descriptors_;
    const Operation operation(*library_, name_, shape_, alignment_bytes_);
    cublaslt::HeuristicResult checked{};
    library_->check(library_->entries().MatmulAlgoCheck(library_->handle(device_), operation.get(), d.first, d.second,
                                                        d.c, d.y, &*options.algorithm, &checked),
                    "cublasLtMatmulAlgoCheck", "pin the algorithm of product", name_, numbers_of(options),
                    "plan the product again with this version of the library");
    if (checked.workspace_bytes > options.workspace_limit_bytes)
      throw Error({.doing = "pin the algorithm of product",
                   .object = name_,
                   .detail = numbers_of(options) + ": it needs " + std::to_string(checked.workspace_bytes),
                   .advice = "allow a larger workspace, or choose another algorithm"});
    algorithm_ = *options.algorithm;
    workspace_bytes_ = checked.workspace_bytes;
    return;
  }
  const auto all = proposed(options, options.config ? kMostMatmulProposals : options.candidate + 1);
  auto taken = all.end();
  if (options.config)
    taken = std::ranges::find_if(all, [&](const cublaslt::HeuristicResult& one) {
      return one.state == 0 && config_of(*library_, one.algorithm) == *options.config;
    });
  else if (options.candidate >= 0 && options.candidate < std::ssize(all))
    taken = all.begin() + options.candidate;
  if (taken == all.end())
    throw Error({.doing = "choose an algorithm for product",
                 .object = name_,
                 .detail = numbers_of(options) + ": " +
                           (options.config ? to_string(*options.config) + " is none"
                                           : "candidate " + std::to_string(options.candidate)) +
                           " of " + std::to_string(all.size()) + " proposed by cuBLASLt " +
                           std::to_string(library_->version()),
                 .advice = options.config ? "measure again with this version of the library"
                                          : "take an earlier candidate, or allow a larger workspace"});
  library_->check(taken->state, "cublasLtMatmulAlgoGetHeuristic", "choose an algorithm for product", name_,
                  numbers_of(options));
  algorithm_ = taken->algorithm;
  workspace_bytes_ = taken->workspace_bytes;
}

MatmulSpans MatmulPlan::spans() const {
  return {.a = stored_a(shape_).bytes(shape_.inputs),
          .b = stored_b(shape_).bytes(shape_.inputs),
          .c = shape_.beta == 0.0f ? 0 : Stored{shape_.m, shape_.n, shape_.ldc}.bytes(shape_.output),
          .bias = shape_.bias ? static_cast<uint64_t>(shape_.n) * bytes_of(shape_.output) : 0,
          .y = Stored{shape_.m, shape_.n, shape_.ldy}.bytes(shape_.output),
          .workspace = workspace_bytes_};
}

uint64_t MatmulPlan::flops() const {
  return 2 * static_cast<uint64_t>(shape_.m) * static_cast<uint64_t>(shape_.n) * static_cast<uint64_t>(shape_.k);
}

std::string MatmulPlan::describe() const {
  if (backend_ == MatmulBackend::reference) return "reference product";
  return "cuBLASLt " + std::to_string(library_->version()) + ", " + to_string(config());
}

MatmulConfig MatmulPlan::config() const { return library_ ? config_of(*library_, algorithm_) : MatmulConfig{}; }

void MatmulPlan::check_operands(const MatmulOperands& operands) const {
  const MatmulSpans span = spans();
  const auto check = [&](const char* which, uint64_t address, uint64_t bytes, bool needed) {
    if (bytes != 0 && ((needed && address == 0) || address % alignment_bytes_ != 0))
      throw Error({.doing = "run product",
                   .object = name_,
                   .detail = "operand " + std::string(which) + " of " + std::to_string(bytes) + " bytes at address " +
                             std::to_string(address),
                   .advice = "pass memory aligned to " + std::to_string(alignment_bytes_) + " bytes"});
  };
  check("a", operands.a, span.a, true);
  check("b", operands.b, span.b, true);
  check("c", operands.c, span.c, false);
  check("bias", operands.bias, span.bias, true);
  check("y", operands.y, span.y, true);
  check("workspace", operands.workspace, span.workspace, true);
  if (operands.c == 0 && shape_.beta != 0.0f && shape_.ldc != shape_.ldy)
    throw Error({.doing = "run product",
                 .object = name_,
                 .detail = "it adds to y, whose rows are " + std::to_string(shape_.ldy) + " elements apart, with ldc " +
                           std::to_string(shape_.ldc),
                 .advice = "leave ldc as ldy, or pass c"});
}

void MatmulPlan::submit(const MatmulOperands& operands, CUstream stream) const {
  check_operands(operands);
  const ContextGuard current(device_);
  if (backend_ == MatmulBackend::reference) {
    ReferenceProduct arguments = reference_arguments(operands);
    void* argument = &arguments;
    CUlaunchConfig config{};
    config.gridDimX = reference_.shape.grid[0];
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = reference_.shape.block[0];
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    const Driver& driver = device_.driver();
    driver.check(driver.cuLaunchKernelEx(&config, reference_.loaded->function, &argument, nullptr), "cuLaunchKernelEx",
                 "run product", name_);
    return;
  }
  const auto pointer = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  const Operation operation(*library_, name_, shape_, operands.bias);
  const uint64_t c = operands.c != 0 ? operands.c : operands.y;
  const Descriptors& d = *descriptors_;
  const auto status = library_->entries().Matmul(library_->handle(device_), operation.get(), &shape_.alpha,
                                                 pointer(operands.b), d.first, pointer(operands.a), d.second,
                                                 &shape_.beta, pointer(c), d.c, pointer(operands.y), d.y, &algorithm_,
                                                 pointer(operands.workspace), workspace_bytes_, stream);
  if (status != 0)
    library_->check(status, "cublasLtMatmul", "run product", name_, to_string(shape_) + ", " + describe());
}

ReferenceProduct MatmulPlan::reference_arguments(const MatmulOperands& operands) const {
  check_operands(operands);
  const MatmulSpans span = spans();
  const auto in = [](uint64_t address, uint64_t bytes) {
    return In<uint8_t>{reinterpret_cast<const uint8_t*>(address), address == 0 ? 0 : bytes};
  };
  return {.a = in(operands.a, span.a),
          .b = in(operands.b, span.b),
          .c = in(span.c == 0 ? 0 : operands.c, span.c),
          .bias = in(span.bias == 0 ? 0 : operands.bias, span.bias),
          .y = {reinterpret_cast<uint8_t*>(operands.y), span.y},
          .m = shape_.m,
          .n = shape_.n,
          .k = shape_.k,
          .a_row = shape_.transpose_a ? 1 : shape_.lda,
          .a_column = shape_.transpose_a ? shape_.lda : 1,
          .b_row = shape_.transpose_b ? 1 : shape_.ldb,
          .b_column = shape_.transpose_b ? shape_.ldb : 1,
          .c_row = shape_.ldc,
          .y_row = shape_.ldy,
          .alpha = shape_.alpha,
          .beta = shape_.beta};
}

MatmulPlanner::MatmulPlanner(Device& device, KernelCache& kernels)
    : MatmulPlanner(device, kernels, device.driver().is_cpu() ? MatmulBackend::reference : MatmulBackend::cublaslt) {}

MatmulPlanner::MatmulPlanner(Device& device, KernelCache& kernels, MatmulBackend backend)
    : device_(device), kernels_(kernels) {
  if (backend == MatmulBackend::reference) return;
  if (device.driver().is_cpu())
    throw Error({.doing = "multiply with cuBLASLt on",
                 .object = device.name(),
                 .detail = "it is the CPU driver, which cuBLASLt does not know",
                 .advice = "use the reference product"});
  library_ = MatmulLibrary::load();
}

MatmulPlanner::MatmulPlanner(Device& device, KernelCache& kernels, std::shared_ptr<const MatmulLibrary> library)
    : device_(device), kernels_(kernels), library_(std::move(library)) {}

std::shared_ptr<const MatmulPlan> MatmulPlanner::plan(std::string name, const MatmulShape& shape,
                                                      const MatmulOptions& options) const {
  std::shared_ptr<MatmulPlan> plan(new MatmulPlan(device_, std::move(name), shape, options, backend()));
  if (library_) {
    plan->choose_algorithm(library_, options);
    return plan;
  }
  plan->reference_ = kernels_.kernel<ReferenceProduct>(
      {"reference_product",
       {{"kInput", static_cast<int64_t>(shape.inputs)}, {"kOutput", static_cast<int64_t>(shape.output)}}},
      reference_product_shape(shape.m, shape.n));
  return plan;
}

std::vector<MatmulConfig> MatmulPlanner::proposals(const MatmulPlan& plan) const {
  std::vector<MatmulConfig> all;
  if (!library_) return all;
  for (const cublaslt::HeuristicResult& one : plan.proposed({}, kMostMatmulProposals))
    if (const MatmulConfig config = config_of(*library_, one.algorithm);
        one.state == 0 && !std::ranges::count(all, config))
      all.push_back(config);
  return all;
}

}  // namespace nodewright
