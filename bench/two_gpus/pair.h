// Two GPUs of one process for the experiments here: contexts with peer access, streams, kernels of one cubin, a pinned
// abort word; and lists of samples printed as JSON. A driver call that fails ends the program with its name.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/two_gpus/abort_words.h"

#define MUST(call) two_gpus::must((call), #call, __FILE__, __LINE__)

namespace two_gpus {

inline void must(CUresult result, const char* call, const char* file, int line) {
  if (result == CUDA_SUCCESS) return;
  const char* text = "?";
  cuGetErrorString(result, &text);
  std::fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, text, result);
  std::exit(1);
}

inline double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Two devices that map each other's memory.
struct Pair {
  CUcontext context[2];
  CUstream stream[2];
  CUmodule module[2];
  unsigned* abort_word;  // pinned, portable
  CUdeviceptr near[2];   // a word of each GPU
  std::string gpu;       // "name", its driver version, as two JSON members

  explicit Pair(const char* cubin) {
    int devices = 0, driver = 0;
    char name[256];
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&devices));
    if (devices < 2) std::fprintf(stderr, "two GPUs are needed, there is %d\n", devices), std::exit(1);
    for (int d = 0; d < 2; ++d) {
      MUST(cuDevicePrimaryCtxRetain(&context[d], d));
      use(d);
      MUST(cuStreamCreate(&stream[d], CU_STREAM_NON_BLOCKING));
      MUST(cuModuleLoad(&module[d], cubin));
    }
    for (int d = 0; d < 2; ++d) use(d), MUST(cuCtxEnablePeerAccess(context[1 - d], 0));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&abort_word), 64,
                        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    for (int d = 0; d < 2; ++d) near[d] = memory(d, 64);
    *abort_word = 0;
    MUST(cuDeviceGetName(name, sizeof name, 0));
    MUST(cuDriverGetVersion(&driver));
    gpu = "\"gpu\": \"" + std::string(name) + "\", \"cuda\": " + std::to_string(driver);
  }

  void use(int d) const { MUST(cuCtxSetCurrent(context[d])); }
  CUfunction kernel(int d, const char* name) const {
    CUfunction found;
    MUST(cuModuleGetFunction(&found, module[d], name));
    return found;
  }
  // Zeroed memory of device d.
  CUdeviceptr memory(int d, size_t bytes) const {
    CUdeviceptr at;
    use(d), MUST(cuMemAlloc(&at, bytes)), MUST(cuMemsetD8(at, 0, bytes)), MUST(cuCtxSynchronize());
    return at;
  }
  void launch(int d, CUfunction kernel, int blocks, int threads, void** arguments) const {
    use(d), MUST(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream[d], arguments, nullptr));
  }
  void synchronize() const {
    for (int d = 0; d < 2; ++d) use(d), MUST(cuStreamSynchronize(stream[d]));
  }
  AbortWords abort(int d) const { return {abort_word, reinterpret_cast<unsigned*>(near[d])}; }
  void clear_abort() const {
    *abort_word = 0;
    for (int d = 0; d < 2; ++d) use(d), MUST(cuMemsetD8(near[d], 0, 4)), MUST(cuCtxSynchronize());
  }
  // 0, or why the kernels gave up: 1 the host's word, 2 a poll that lasted too long.
  unsigned aborted() const { return *const_cast<volatile unsigned*>(abort_word); }
};

// A chain of kernels of one device, with programmatic edges, that becomes a graph.
class Chain {
 public:
  Chain() { MUST(cuGraphCreate(&graph_, 0)); }
  void add(CUfunction kernel, int blocks, int threads, unsigned shared_bytes, void** arguments,
           bool full_edge = false) {
    CUgraphNodeParams node = {};
    node.type = CU_GRAPH_NODE_TYPE_KERNEL;
    node.kernel.func = kernel, node.kernel.kernelParams = arguments, node.kernel.sharedMemBytes = shared_bytes;
    node.kernel.gridDimX = blocks, node.kernel.blockDimX = threads;
    node.kernel.gridDimY = node.kernel.gridDimZ = node.kernel.blockDimY = node.kernel.blockDimZ = 1;
    CUgraphEdgeData edge = {};
    if (!full_edge) edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, edge.from_port = 1;
    CUgraphNode added;
    MUST(cuGraphAddNode(&added, graph_, last_ ? &last_ : nullptr, last_ ? &edge : nullptr, last_ ? 1 : 0, &node));
    last_ = added;
  }
  CUgraphExec instantiate(CUstream stream) {
    CUgraphExec exec;
    MUST(cuGraphInstantiate(&exec, graph_, 0));
    MUST(cuGraphUpload(exec, stream));
    MUST(cuStreamSynchronize(stream));
    return exec;
  }

 private:
  CUgraph graph_;
  CUgraphNode last_ = nullptr;
};

// {"median": .., "p99": .., "least": .., "most": ..} of samples, empty for none.
inline std::string spread(std::vector<double> samples) {
  if (samples.empty()) return "{}";
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) { return samples[static_cast<size_t>(share * (samples.size() - 1))]; };
  char text[256];
  std::snprintf(text, sizeof text, "{\"median\": %.3f, \"p99\": %.3f, \"least\": %.3f, \"most\": %.3f, \"n\": %zu}",
                at(0.5), at(0.99), samples.front(), samples.back(), samples.size());
  return text;
}

}  // namespace two_gpus
