#include "runtime/libraries/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "runtime/error.h"
#include "runtime/libraries/cuda_library_places.h"
#include "runtime/libraries/opened_library.h"

namespace nodewright {
namespace {

constexpr const char* kNcclFiles[] = {"libnccl.so.2", "libnccl.so"};

}  // namespace

std::vector<std::string> NcclLibrary::candidates() { return cuda_library_places(kNcclFiles, "NODEWRIGHT_NCCL"); }

std::shared_ptr<const NcclLibrary> NcclLibrary::load() {
  // Read by NCCL when its first communicator is made.
  for (const char* variable : {"NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_REGISTER"}) setenv(variable, "0", 0);
  nccl::Entries entries;
  const auto take = [&](void* library) {
    const char* missing = nullptr;
#define NODEWRIGHT_ENTRY(result, name, arguments)                                        \
  entries.name = reinterpret_cast<decltype(entries.name)>(dlsym(library, "nccl" #name)); \
  if (entries.name == nullptr && missing == nullptr) missing = "nccl" #name;
    NODEWRIGHT_NCCL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
    return missing;
  };
  std::string tried;
  if (std::string place = open_first(candidates(), take, tried); !place.empty())
    return std::shared_ptr<const NcclLibrary>(new NcclLibrary(entries, std::move(place)));
  throw Error({.doing = "load NCCL, which gathers over the ranks",
               .object = kNcclFiles[0],
               .detail = tried,
               .advice = "pip install nvidia-nccl-cu13, apt-get install libnccl2, or set NODEWRIGHT_NCCL to its path"});
}

std::shared_ptr<const NcclLibrary> NcclLibrary::with_entries(const nccl::Entries& entries, std::string name) {
  return std::shared_ptr<const NcclLibrary>(new NcclLibrary(entries, std::move(name)));
}

NcclLibrary::NcclLibrary(const nccl::Entries& entries, std::string path) : entries_(entries), path_(std::move(path)) {
  check(entries_.GetVersion(&version_), "ncclGetVersion", "ask for the version of", path_, nullptr);
}

std::string NcclLibrary::version() const {
  return fmt::format("{}.{}.{}", version_ / 10000, version_ / 100 % 100, version_ % 100);
}

void NcclLibrary::check(nccl::Result result, std::string_view call, std::string doing, std::string object,
                        nccl::Comm comm) const {
  if (result == 0) return;
  const char* const last = entries_.GetLastError(comm);
  throw Error({.doing = std::move(doing),
               .object = std::move(object),
               .detail = last != nullptr ? last : "",
               .driver = fmt::format("{}: {}, NCCL {}", call, entries_.GetErrorString(result), version()),
               .advice = "run again with NCCL_DEBUG=WARN, by which NCCL says more"});
}

}  // namespace nodewright
