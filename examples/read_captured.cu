// A graph that stream capture makes of cuBLAS and CUB, read as a plan: what is in it is what the driver draws of it,
// and the times of its nodes add up to the step. On a GPU alone.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nodewright/nodewright.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

using namespace nodewright;

namespace {

constexpr int kWidth = 2048;  // of square matrices
constexpr int kCount = kWidth * kWidth;
constexpr int kLayers = 4;

template <class Result>
void check(Result result, const char* what) {
  if (static_cast<int>(result) != 0)
    throw Error({.doing = "call", .object = what, .detail = "it returned " + std::to_string(static_cast<int>(result))});
}

// How many nodes and edges cuGraphDebugDotPrint draws, those of children included.
struct Drawn {
  size_t nodes = 0, edges = 0;
};

Drawn drawn(cudaGraph_t graph) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "read_captured.dot";
  check(cudaGraphDebugDotPrint(graph, path.c_str(), 0), "cudaGraphDebugDotPrint");
  std::ifstream file(path);
  Drawn drawn;
  for (std::string line; std::getline(file, line);) {
    const bool is_edge = line.find("\" -> \"") != std::string::npos;
    drawn.edges += is_edge;
    drawn.nodes += !is_edge && line.find("_node_") != std::string::npos && line.find("\"[") != std::string::npos;
  }
  std::filesystem::remove(path);
  return drawn;
}

void count(const Plan& plan, Drawn& counted) {
  counted.nodes += plan.nodes.size();
  counted.edges += plan.edges.size();
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) count(*body, counted);
}

float* floats(size_t count) {
  float* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(float)), "cudaMalloc");
  check(cudaMemset(memory, 0, count * sizeof(float)), "cudaMemset");
  return memory;
}

cudaGraph_t capture(cudaStream_t stream) {
  cublasHandle_t cublas = nullptr;
  check(cublasCreate(&cublas), "cublasCreate");
  constexpr size_t kWorkspaceBytes = 32 << 20;
  check(cublasSetStream(cublas, stream), "cublasSetStream");
  check(cublasSetWorkspace(cublas, floats(kWorkspaceBytes / sizeof(float)), kWorkspaceBytes), "cublasSetWorkspace");
  float *a = floats(kCount), *b = floats(kCount), *c = floats(kCount), *sorted = floats(kCount), *sum = floats(1);
  size_t sum_bytes = 0, sort_bytes = 0;
  cub::DeviceReduce::Sum(nullptr, sum_bytes, c, sum, kCount, stream);
  cub::DeviceRadixSort::SortKeys(nullptr, sort_bytes, c, sorted, kCount, 0, 32, stream);
  size_t scratch_bytes = std::max(sum_bytes, sort_bytes);
  float* scratch = floats(scratch_bytes / sizeof(float) + 1);

  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  const float one = 1, zero = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    check(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, kWidth, kWidth, kWidth, &one, a, kWidth, b, kWidth, &zero, c,
                      kWidth),
          "cublasSgemm");
    cub::DeviceReduce::Sum(scratch, sum_bytes, c, sum, kCount, stream);
    cub::DeviceRadixSort::SortKeys(scratch, sort_bytes, c, sorted, kCount, 0, 32, stream);
    check(cudaMemcpyAsync(a, sorted, kCount * sizeof(float), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;  // its memory and cuBLAS's handle stay until the program ends
}

}  // namespace

int main(int argc, char** argv) try {
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "cuda:0");
  Device& device = *opened.device;
  const Stream stream(device, "main");
  KernelCache kernels(device);
  const cudaGraph_t graph = capture(stream.get());

  const Plan plan = read_graph(device, graph, {.name = "captured"});
  std::cout << to_text(plan, Fold::layers) << order_report(plan);
  Drawn counted;
  count(plan, counted);
  const Drawn expected = drawn(graph);
  std::printf("%zu nodes and %zu edges read, %zu and %zu drawn by the driver\n", counted.nodes, counted.edges,
              expected.nodes, expected.edges);

  const TimedGraph timed = time_graph(device, graph, kernels, stream, {.name = "captured"});
  double sum_us = 0;
  for (const NodeTiming& node : timed.timings.nodes) sum_us += node.time_us + 2 * timed.timings.bracket_us;
  std::printf("its nodes and their brackets take %.1f us, the step with brackets %.1f us, without %.1f us\n", sum_us,
              timed.timings.step_us, timed.timings.plain_step_us);
  const bool adds_up = std::abs(sum_us - timed.timings.step_us) <= 0.1 * timed.timings.step_us;
  return counted.nodes == expected.nodes && counted.edges == expected.edges && adds_up ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "read_captured: %s\n", error.what());
  return 1;
}
