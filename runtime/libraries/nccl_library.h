// NCCL, found and loaded at run time: the entries that a gather over ranks needs, with the few declarations of nccl.h
// that they use, so that nothing here needs NCCL to be compiled.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

// As nccl.h of NCCL 2 declares them. Names without their nccl prefix.
namespace nccl {

using Result = int;  // 0: success
using Comm = void*;
struct UniqueId {
  char bytes[128];
};
inline constexpr int kInt8 = 0;  // ncclInt8

// clang-format off
#define NODEWRIGHT_NCCL_ENTRIES(X)                                                            \
  X(Result, GetVersion, (int*))                                                               \
  X(const char*, GetErrorString, (Result))                                                    \
  X(const char*, GetLastError, (Comm))                                                        \
  X(Result, GetUniqueId, (UniqueId*))                                                         \
  X(Result, CommInitRank, (Comm*, int ranks, UniqueId, int rank))                             \
  X(Result, CommDestroy, (Comm))                                                              \
  X(Result, CommAbort, (Comm))                                                                \
  X(Result, GroupStart, (void))                                                               \
  X(Result, GroupEnd, (void))                                                                 \
  X(Result, AllGather, (const void* from, void* to, size_t count, int type, Comm, void* stream))
// clang-format on

struct Entries {
#define NODEWRIGHT_ENTRY(result, name, arguments) result(*name) arguments = nullptr;
  NODEWRIGHT_NCCL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
};

}  // namespace nccl

// The loaded library. Immutable; any thread may use it as NCCL allows.
class NcclLibrary {
 public:
  // Opens the first of candidates() that has every entry. Says to NCCL that its calls in graphs are not mixed with
  // others, which saves each a node, and that they register no buffers, which would need all ranks at once: where the
  // variables NCCL_GRAPH_MIXING_SUPPORT and NCCL_GRAPH_REGISTER are not set, it sets them to 0. Throws Error with what
  // was tried or lacked.
  static std::shared_ptr<const NcclLibrary> load();
  // With other entries, for tests.
  static std::shared_ptr<const NcclLibrary> with_entries(const nccl::Entries& entries, std::string name);
  // Files and names that load() tries, in order: the value of NODEWRIGHT_NCCL alone if it is set.
  static std::vector<std::string> candidates();

  const nccl::Entries& entries() const { return entries_; }
  const std::string& path() const { return path_; }
  std::string version() const;  // "2.28.3"

  // Throws Error with NCCL's words where `result` is none of success. `comm`: whose last error counts, or null.
  void check(nccl::Result result, std::string_view call, std::string doing, std::string object, nccl::Comm comm) const;

 private:
  NcclLibrary(const nccl::Entries& entries, std::string path);

  nccl::Entries entries_;
  std::string path_;
  int version_ = 0;
};

}  // namespace nodewright
