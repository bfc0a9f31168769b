// cuBLASLt, found and loaded at run time: the entries that a product needs, with the few declarations of cublasLt.h
// that they use, so that nothing here needs cuBLAS to be compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace nodewright {

// As cublasLt.h of CUDA 12 and 13 declares them (matmul_library.cpp compares, where that header is there). Names
// without their cublasLt prefix.
namespace cublaslt {

using Status = int;  // 0: success
using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;

struct Algorithm {
  uint64_t words[8];
  bool operator==(const Algorithm&) const = default;
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

inline constexpr int kCompute32f = 68;  // CUBLAS_COMPUTE_32F
inline constexpr int kR32f = 0, kR16f = 2, kR16bf = 14;
inline constexpr int kOpN = 0, kOpT = 1;
inline constexpr int kDescTransA = 3, kDescTransB = 4, kDescEpilogue = 7, kDescBiasPointer = 8;
inline constexpr int kEpilogueBias = 4;
inline constexpr int kPreferenceWorkspaceBytes = 1;
inline constexpr int kPreferenceAlignmentA = 5, kPreferenceAlignmentB = 6, kPreferenceAlignmentC = 7,
                     kPreferenceAlignmentD = 8;
inline constexpr int kConfigId = 0, kConfigTile = 1, kConfigSplitK = 2, kConfigReduction = 3, kConfigSwizzle = 4,
                     kConfigCustom = 5, kConfigStages = 6, kConfigInnerShape = 7, kConfigClusterShape = 8;

// clang-format off
#define NODEWRIGHT_CUBLASLT_ENTRIES(X)                                                                               \
  X(size_t, GetVersion, (void))                                                                                      \
  X(const char*, GetStatusName, (Status))                                                                            \
  X(Status, Create, (Handle*))                                                                                       \
  X(Status, Destroy, (Handle))                                                                                       \
  X(Status, MatmulDescCreate, (MatmulDesc*, int compute_type, int scale_type))                                       \
  X(Status, MatmulDescDestroy, (MatmulDesc))                                                                         \
  X(Status, MatmulDescSetAttribute, (MatmulDesc, int, const void*, size_t))                                          \
  X(Status, MatrixLayoutCreate, (MatrixLayout*, int type, uint64_t rows, uint64_t cols, int64_t ld))                 \
  X(Status, MatrixLayoutDestroy, (MatrixLayout))                                                                     \
  X(Status, MatmulPreferenceCreate, (Preference*))                                                                   \
  X(Status, MatmulPreferenceDestroy, (Preference))                                                                   \
  X(Status, MatmulPreferenceSetAttribute, (Preference, int, const void*, size_t))                                    \
  X(Status, MatmulAlgoGetHeuristic, (Handle, MatmulDesc, MatrixLayout a, MatrixLayout b, MatrixLayout c,             \
                                     MatrixLayout d, Preference, int wanted, HeuristicResult*, int* found))          \
  X(Status, MatmulAlgoCheck, (Handle, MatmulDesc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d,    \
                              const Algorithm*, HeuristicResult*))                                                   \
  X(Status, MatmulAlgoConfigGetAttribute, (const Algorithm*, int, void*, size_t, size_t*))                           \
  X(Status, Matmul, (Handle, MatmulDesc, const void* alpha, const void* a, MatrixLayout, const void* b, MatrixLayout,\
                     const void* beta, const void* c, MatrixLayout, void* d, MatrixLayout, const Algorithm*,         \
                     void* workspace, size_t workspace_bytes, CUstream))
// clang-format on

struct Entries {
#define NODEWRIGHT_ENTRY(result, name, arguments) result(*name) arguments = nullptr;
  NODEWRIGHT_CUBLASLT_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
};

}  // namespace cublaslt

class MatmulLibrary {
 public:
  // Takes the first of candidates() that loads and has every entry. Throws Error with every place and why it did not
  // do.
  static std::shared_ptr<const MatmulLibrary> load();
  // One whose entries the caller provides: for tests.
  static std::shared_ptr<const MatmulLibrary> with_entries(const cublaslt::Entries& entries, std::string name);
  // Files and names to try, in order: $NODEWRIGHT_CUBLASLT alone if it is set; otherwise cuda_library_places().
  static std::vector<std::string> candidates();

  ~MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;

  size_t version() const { return version_; }        // 130200 is cuBLAS 13.2.0
  const std::string& path() const { return path_; }  // the file or name it was loaded by

  // The library's handle on `device`, made when it is first asked for, or borrowed. Thread-safe. The device must
  // outlive this object.
  cublaslt::Handle handle(const Device& device) const;

  // Uses a handle that stays its owner's, who keeps it until this object and its products are gone: a framework's
  // cublasLtHandle_t, or its cublasHandle_t, which may be used as one (cuBLAS documentation, "cublasLtHandle_t"). The
  // owner's library is the file at path(). Throws Error when the device has a handle already.
  void borrow(const Device& device, cublaslt::Handle handle) const;

  // Throws Error unless `status` is success; `doing`, `object`, `detail` and `advice` as in Error::Parts.
  void check(cublaslt::Status status, const char* call, std::string doing, std::string object, std::string detail = {},
             std::string advice = {}) const;

  const cublaslt::Entries& entries() const { return entries_; }

 private:
  MatmulLibrary(const cublaslt::Entries& entries, std::string path);

  cublaslt::Entries entries_;
  std::string path_;
  size_t version_;
  mutable std::mutex mutex_;
  struct HeldHandle {
    cublaslt::Handle handle = nullptr;
    bool owned = false;
  };
  mutable std::map<CUcontext, HeldHandle> handles_;
};

}  // namespace nodewright
