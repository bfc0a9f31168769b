#include "runtime/libraries/matmul_library.h"

#include <dlfcn.h>

#include <utility>

#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/libraries/cuda_library_places.h"
#include "runtime/libraries/opened_library.h"

// The headers of CUDA 12 may lie beside another release's cuBLASLt.
#if CUDA_VERSION >= 13000 && __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace nodewright {
namespace {

constexpr const char* kCublasLtFiles[] = {"libcublasLt.so.13", "libcublasLt.so", "libcublasLt.so.12"};

#if CUDA_VERSION >= 13000 && __has_include(<cublasLt.h>)
static_assert(sizeof(cublaslt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(cublaslt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cublaslt::HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cublaslt::HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(cublaslt::kCompute32f == CUBLAS_COMPUTE_32F && cublaslt::kR32f == CUDA_R_32F &&
              cublaslt::kR16f == CUDA_R_16F && cublaslt::kR16bf == CUDA_R_16BF);
static_assert(cublaslt::kOpN == CUBLAS_OP_N && cublaslt::kOpT == CUBLAS_OP_T);
static_assert(cublaslt::kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA &&
              cublaslt::kDescTransB == CUBLASLT_MATMUL_DESC_TRANSB &&
              cublaslt::kDescEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              cublaslt::kDescBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              cublaslt::kEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(cublaslt::kPreferenceWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              cublaslt::kPreferenceAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              cublaslt::kPreferenceAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(cublaslt::kConfigId == CUBLASLT_ALGO_CONFIG_ID && cublaslt::kConfigTile == CUBLASLT_ALGO_CONFIG_TILE_ID &&
              cublaslt::kConfigSplitK == CUBLASLT_ALGO_CONFIG_SPLITK_NUM &&
              cublaslt::kConfigReduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME &&
              cublaslt::kConfigSwizzle == CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING &&
              cublaslt::kConfigCustom == CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION &&
              cublaslt::kConfigStages == CUBLASLT_ALGO_CONFIG_STAGES_ID &&
              cublaslt::kConfigInnerShape == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID &&
              cublaslt::kConfigClusterShape == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
#endif

}  // namespace

std::vector<std::string> MatmulLibrary::candidates() {
  return cuda_library_places(kCublasLtFiles, "NODEWRIGHT_CUBLASLT");
}

std::shared_ptr<const MatmulLibrary> MatmulLibrary::load() {
  cublaslt::Entries entries;
  const auto take = [&](void* library) {
    const char* missing = nullptr;
#define NODEWRIGHT_ENTRY(result, name, arguments)                                            \
  entries.name = reinterpret_cast<decltype(entries.name)>(dlsym(library, "cublasLt" #name)); \
  if (entries.name == nullptr && missing == nullptr) missing = "cublasLt" #name;
    NODEWRIGHT_CUBLASLT_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
    return missing;
  };
  std::string tried;
  if (std::string place = open_first(candidates(), take, tried); !place.empty())
    return std::shared_ptr<const MatmulLibrary>(new MatmulLibrary(entries, std::move(place)));
  throw Error({.doing = "load cuBLASLt, which multiplies matrices",
               .object = "libcublasLt.so.13",
               .detail = tried,
               .advice = "install the CUDA toolkit, set CUDA_HOME, pip install nvidia-cublas, or set "
                         "NODEWRIGHT_CUBLASLT to its path"});
}

std::shared_ptr<const MatmulLibrary> MatmulLibrary::with_entries(const cublaslt::Entries& entries, std::string name) {
  return std::shared_ptr<const MatmulLibrary>(new MatmulLibrary(entries, std::move(name)));
}

MatmulLibrary::MatmulLibrary(const cublaslt::Entries& entries, std::string path)
    : entries_(entries), path_(std::move(path)), version_(entries_.GetVersion()) {}

MatmulLibrary::~MatmulLibrary() {
  for (const auto& [context, held] : handles_)
    if (held.owned) entries_.Destroy(held.handle);
}

cublaslt::Handle MatmulLibrary::handle(const Device& device) const {
  const ContextGuard current(device);
  const std::lock_guard lock(mutex_);
  HeldHandle& held = handles_[device.context()];
  if (held.handle == nullptr) {
    check(entries_.Create(&held.handle), "cublasLtCreate", "open cuBLASLt on", device.name(), path_,
          "see whether this version of cuBLASLt supports the device and the driver");
    held.owned = true;
  }
  return held.handle;
}

void MatmulLibrary::borrow(const Device& device, cublaslt::Handle handle) const {
  const std::lock_guard lock(mutex_);
  HeldHandle& held = handles_[device.context()];
  const char* problem = handle == nullptr        ? "the handle is null"
                        : held.handle != nullptr ? "the device has a handle already"
                                                 : nullptr;
  if (problem != nullptr)
    throw Error({.doing = "borrow a handle of cuBLASLt on",
                 .object = device.name(),
                 .detail = problem,
                 .advice = "borrow once, before the first product is planned"});
  held.handle = handle;
}

void MatmulLibrary::check(cublaslt::Status status, const char* call, std::string doing, std::string object,
                          std::string detail, std::string advice) const {
  if (status == 0) return;
  throw Error(
      {.doing = std::move(doing),
       .object = std::move(object),
       .detail = std::move(detail),
       .driver = std::string(call) + ": " + entries_.GetStatusName(status) + ", cuBLASLt " + std::to_string(version_),
       .advice = std::move(advice)});
}

}  // namespace nodewright
