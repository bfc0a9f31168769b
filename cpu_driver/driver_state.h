// The one state of the driver, its lock, and what every entry point does first and last.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

#include "cpu_driver/conditional.h"
#include "cpu_driver/cuda_names.h"
#include "cpu_driver/device_memory.h"
#include "cpu_driver/graphs/graph_objects.h"
#include "cpu_driver/handles.h"
#include "cpu_driver/work/peer_deliveries.h"
#include "cpu_driver/work/stream_queue.h"
#include "cpu_driver/work/work.h"
#include "runtime/calls/cpu_driver_api.h"

namespace nodewright::cpu {

using Lock = std::unique_lock<std::mutex>;

struct Library {
  std::shared_ptr<LoadedImage> loaded;
};

// A CUDA array: rows, and slices of them, one after the other in a block of device memory.
struct Array {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t address = 0;
  size_t element_bytes = 0;

  size_t row_bytes() const { return descriptor.Width * element_bytes; }
  size_t rows() const { return std::max<size_t>(descriptor.Height, 1); }
  size_t slices() const { return std::max<size_t>(descriptor.Depth, 1); }
};

// A context of some of a device's multiprocessors.
struct GreenContext {
  int device = 0;
  unsigned multiprocessors = 0;
  CUcontext context = nullptr;  // its handle as an ordinary context
};

struct State {
  std::mutex mutex;
  CpuDriverOptions options;
  bool initialised = false;
  std::array<int, kMostCpuDevices> retained{};  // primary contexts
  std::unique_ptr<DeviceMemory> memory;
  std::array<std::array<bool, kMostCpuDevices>, kMostCpuDevices> peers{};  // [device][other]: may use its memory
  PeerDeliveries deliveries;
  std::map<uint64_t, uint64_t> registered;  // host memory of the program that is page-locked: begin, end
  std::unique_ptr<Executor> executor;
  std::shared_ptr<Stream> null_stream;

  HandleTable<Stream, CUstream, 1> streams;
  HandleTable<Event, CUevent, 2> events;
  HandleTable<Library, CUlibrary, 3> libraries;
  HandleTable<LoadedImage, CUkernel, 4> kernels;
  HandleTable<LoadedImage, CUfunction, 5> functions;
  HandleTable<Graph, CUgraph, 6> graphs;
  HandleTable<GraphNode, CUgraphNode, 7> nodes;
  HandleTable<GraphExec, CUgraphExec, 8> execs;
  HandleTable<Semaphore, CUexternalSemaphore, 11> semaphores;
  HandleTable<Array, CUarray, 14> arrays;
  HandleTable<GreenContext, CUgreenCtx, 15> green_contexts;
  HandleTable<GreenContext, CUcontext, 16> contexts_of_green;
  std::unordered_map<CUgraphConditionalHandle, std::weak_ptr<Conditional>> conditionals;
  std::unordered_map<CUuserObject, UserObjectEntry> user_objects;

  CUresult sticky = CUDA_SUCCESS;
  std::string report;          // of the sticky error
  bool host_may_help = false;  // some of what was last found to wait waits for a value or a semaphore, not for packets
  std::string waiting_for;     // what the work that was last found to wait waits for
  uint64_t launches = 0;

  // The first error after dispatch stays until the last context is gone.
  void fail(CUresult result, std::string text);

  bool is_retained(CUcontext context) const;  // a primary context of this driver that somebody holds
  bool any_retained() const;

  // The device's context is gone, and with it who may use whose memory.
  void forget_peers(int device) {
    peers[static_cast<size_t>(device)].fill(false);
    for (auto& other : peers) other[static_cast<size_t>(device)] = false;
  }
  // Its own memory, pinned memory, and that of devices whose peer access is on.
  bool may_access(int device, const DeviceMemory::Block& block) const {
    return block.kind == DeviceMemory::Kind::pinned || block.device == device ||
           peers[static_cast<size_t>(device)][static_cast<size_t>(block.device)];
  }

  // The stream of a handle, null for the legacy default stream. Null, and the reason as a refusal: no such stream, or
  // one of another context than the current.
  std::shared_ptr<Stream> find_stream(CUstream handle) const;

  // Copies of the range run when their turn comes; those of other host memory run while the caller waits.
  bool is_registered(uint64_t address, uint64_t bytes) const;
  bool is_pageable(CUmemorytype type, const void* host) const;
};

// Lives as long as the process: its threads may outlast main.
State& state();

inline constexpr uint64_t kContextHandles = 9ull << 40 | 1;   // and the device
inline constexpr uint64_t kConditionalHandles = 10ull << 40;  // and a number that never comes back
inline constexpr uint64_t kDeviceNodeHandles = 12ull << 40;   // the same
inline constexpr uint64_t kUserObjectHandles = 13ull << 40;   // the same
inline CUcontext primary_context(int device) {
  return reinterpret_cast<CUcontext>(kContextHandles + static_cast<uint64_t>(device));
}
// The device of one of this driver's contexts.
inline int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<uint64_t>(context) - kContextHandles);
}
extern thread_local CUcontext current_context;

// Why the calling thread's last call was refused; nodewright_cpu_report shows it when there is no fault.
extern thread_local std::string refusal;
CUresult refuse(CUresult result, std::string why);

// Takes the label that nodewright_cpu_label has set for this thread's next launch or node.
std::string take_label();

// CUDA's rule for the functions of user objects, whose thread holds up others.
inline CUresult refuse_user_objects_call() {
  return refuse(CUDA_ERROR_NOT_PERMITTED, "the function of a user object calls the driver");
}

enum class Needs { nothing, initialised, context };

// An entry point's frame: the lock, a sticky error first, the call's own result after.
template <class Body>
CUresult enter(Needs needs, Body&& body) {
  if (destroys_user_object) return refuse_user_objects_call();
  State& s = state();
  Lock lock(s.mutex);
  refusal.clear();
  if (needs != Needs::nothing && !s.initialised) return refuse(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
  if (s.sticky != CUDA_SUCCESS) return s.sticky;
  if (needs == Needs::context && !s.is_retained(current_context))
    return refuse(CUDA_ERROR_INVALID_CONTEXT, "no current context in this thread");
  try {
    return body(s, lock);
  } catch (const std::bad_alloc&) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
  }
}

// The same for calls that give something back: they work after a sticky error too.
template <class Body>
CUresult enter_release(Body&& body) {
  if (destroys_user_object) return refuse_user_objects_call();
  State& s = state();
  Lock lock(s.mutex);
  refusal.clear();
  return body(s, lock);
}

}  // namespace nodewright::cpu
