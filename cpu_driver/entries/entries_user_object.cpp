// Entry points: user objects, and which graphs keep them.
#include <algorithm>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/node_lookup.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

CUresult no_user_object() {
  return refuse(CUDA_ERROR_INVALID_HANDLE, "no such user object, or nothing refers to it any more");
}

UserObjectEntry* find_user_object(State& s, CUuserObject handle) {
  const auto found = s.user_objects.find(handle);
  return found == s.user_objects.end() || found->second.object.expired() ? nullptr : &found->second;
}

CUresult release_of_callers(UserObjectEntry& entry, uint64_t count) {
  if (count > entry.count)
    return refuse(CUDA_ERROR_INVALID_VALUE, std::to_string(count) + " references to release, and the caller holds " +
                                                std::to_string(entry.count));
  entry.count -= count;
  if (entry.count == 0) entry.of_callers = nullptr;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned int count,
                                    unsigned int flags) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (out == nullptr || destroy == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return refuse(CUDA_ERROR_INVALID_VALUE, "a user object needs CU_USER_OBJECT_NO_DESTRUCTOR_SYNC");
    std::erase_if(s.user_objects, [](const auto& entry) { return entry.second.object.expired(); });
    static uint64_t last = 0;
    *out = reinterpret_cast<CUuserObject>(kUserObjectHandles | ++last);
    const auto object = std::make_shared<UserObject>(data, destroy);
    s.user_objects[*out] = {object, object, count};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    UserObjectEntry* entry = find_user_object(s, handle);
    if (entry == nullptr) return no_user_object();
    if (count == 0) return CUDA_ERROR_INVALID_VALUE;
    entry->of_callers = entry->object.lock();
    entry->count += count;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  return enter_release([&](State& s, Lock&) {
    UserObjectEntry* entry = find_user_object(s, handle);
    if (entry == nullptr) return no_user_object();
    if (count == 0) return CUDA_ERROR_INVALID_VALUE;
    return release_of_callers(*entry, count);
  });
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                         unsigned int flags) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return no_graph();
    UserObjectEntry* entry = find_user_object(s, handle);
    if (entry == nullptr) return no_user_object();
    if (count == 0 || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<UserObject> object = entry->object.lock();
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) != 0)
      if (const CUresult result = release_of_callers(*entry, count); result != CUDA_SUCCESS) return result;
    const auto held = std::ranges::find(graph->kept, handle, &UserReferences::handle);
    if (held == graph->kept.end())
      graph->kept.push_back({handle, object, count});
    else
      held->count += count;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
  return enter_release([&](State& s, Lock&) {
    const auto graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return no_graph();
    const auto held = std::ranges::find(graph->kept, handle, &UserReferences::handle);
    if (held == graph->kept.end() || count == 0 || count > held->count)
      return refuse(CUDA_ERROR_INVALID_VALUE, "the graph holds fewer references to the user object");
    held->count -= count;
    if (held->count == 0) graph->kept.erase(held);
    return CUDA_SUCCESS;
  });
}
