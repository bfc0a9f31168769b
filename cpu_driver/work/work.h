// What a stream operation or a graph node does, as plain data: argument bytes and parameters are copies, handles are
// resolved. Who runs it, and when, is no matter here.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cpu_driver/cuda_names.h"
#include "cpu_driver/kernel_attributes.h"
#include "cpu_driver/kernel_image.h"

namespace nodewright::cpu {

struct State;
struct Graph;
struct Event;
struct Conditional;
struct GraphMemory;
struct Semaphore;
struct GreenContext;

inline constexpr uint32_t kDefaultDynamicShared = 48 << 10;  // without the function attribute

// CUlibrary, CUkernel and CUfunction of one image.
struct LoadedImage {
  std::unique_ptr<KernelImage> image;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  uint32_t max_dynamic_shared = kDefaultDynamicShared;
  bool large_clusters = false;  // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
  bool unloaded = false;
  double ns_per_block = 0;  // the executor's
};

struct KernelWork {
  std::shared_ptr<LoadedImage> loaded;
  emulation::Index3 grid{}, block{};
  uint32_t shared_bytes = 0;
  std::vector<std::byte> args;
  KernelAttributes attributes;
  int device = 0;                       // that it runs on
  std::shared_ptr<GreenContext> green;  // that it runs in; null: the primary context
  bool by_kernel = false;               // named by `kern`, not `func`
  bool by_extra = false;                // arguments came through `extra`, not `kernelParams`
  std::vector<void*> params;            // what cuGraphKernelNodeGetParams points at: params or extra, set there
  void* extra[5] = {};
  size_t extra_bytes = 0;
};

struct CopyWork {
  CUDA_MEMCPY3D copy{};
  std::vector<std::byte> staged;  // a pageable source, copied when the call was made
  bool poison = false;
};

struct FillWork {
  CUDA_MEMSET_NODE_PARAMS fill{};
};

struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

struct RecordWork {
  std::shared_ptr<Event> event;
};

struct WaitWork {
  std::shared_ptr<Event> event;
};

struct ChildWork {
  std::shared_ptr<Graph> graph;
  bool moved = false;  // the caller's own graph, not a clone
};

struct ConditionalWork {
  std::shared_ptr<Conditional> condition;
  CUgraphConditionalNodeType type;
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<CUgraph> handles;  // of the bodies: phGraph_out, which lasts as long as the node
};

struct AllocateWork {
  std::shared_ptr<GraphMemory> memory;  // of a node; null: in the order of a stream
  uint64_t address = 0, bytes = 0;
  int device = 0;
};

struct FreeWork {
  std::shared_ptr<GraphMemory> memory;  // of a node
  uint64_t address = 0;
};

struct ValueWork {
  std::vector<CUstreamBatchMemOpParams> operations;
};

struct SemaphoreWork {
  bool signal = false;  // otherwise it waits
  std::vector<std::shared_ptr<Semaphore>> semaphores;
  std::vector<CUexternalSemaphore> handles;  // as they were given, and what for: one of the two lists
  std::vector<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS> signals;
  std::vector<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> waits;
  std::vector<uint64_t> values;
};

struct Work {
  std::string label;  // the node's name in reports
  std::variant<std::monostate, KernelWork, CopyWork, FillWork, HostWork, RecordWork, WaitWork, ChildWork,
               ConditionalWork, AllocateWork, FreeWork, ValueWork, SemaphoreWork>
      what;
};

// The rules for parameters. CUDA_SUCCESS, or the result of the call and the reason through refuse().
// make_kernel_work keeps the attributes that `work` has and checks them too.
CUresult make_kernel_work(State& state, const CUDA_KERNEL_NODE_PARAMS& params, KernelWork& work);
CUresult check_copy(State& state, const CUDA_MEMCPY3D& copy);
CUresult check_fill(State& state, const CUDA_MEMSET_NODE_PARAMS& fill);

// Whether an executable graph's fill may become another (cuGraphExecMemsetNodeSetParams and cuGraphExecUpdate in
// cuda.h): one of several rows takes another address and value alone, and a single row stays one.
bool may_become(const CUDA_MEMSET_NODE_PARAMS& now, const CUDA_MEMSET_NODE_PARAMS& next);

// Whether a node of this work and one of the other are the same but for their labels. Those that no stream captures
// are not.
bool same_parameters(const Work& a, const Work& b);

// A linear copy in the form of the 3D one.
CUDA_MEMCPY3D linear_copy(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, size_t bytes);

// Host addresses of a copy's two ends and what lies between them.
struct CopyEnds {
  std::byte* to;
  const std::byte* from;
  size_t to_pitch, to_slice, from_pitch, from_slice;
};
CopyEnds copy_ends(const CUDA_MEMCPY3D& copy);

// The copy with arrays replaced by the device memory that they lie in; none where an array is gone.
std::optional<CUDA_MEMCPY3D> without_arrays(const State& state, const CUDA_MEMCPY3D& copy);

}  // namespace nodewright::cpu
