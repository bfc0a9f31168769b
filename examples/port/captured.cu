// The decode loop of a small model with stream capture, as engines write it: two streams, events between them, and a
// graph that is captured again for each step and updated, since one argument changes. explicit.cu is its port.
//   captured             decodes
//   captured --mistake   records one event before the loop over layers, once, and not in it
#include <string_view>

#include "examples/port/kernels.cuh"

using namespace port;

namespace {

using Pointers = Memory<float*, int*>;

struct Machine {
  cudaStream_t stream = nullptr, side = nullptr;
  cudaEvent_t normed = nullptr, kv_done = nullptr;
  cublasHandle_t cublas = nullptr;
  void* workspace = nullptr;
};

Machine open_machine() {
  Machine on;
  for (cudaStream_t* stream : {&on.stream, &on.side}) check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  for (cudaEvent_t* event : {&on.normed, &on.kv_done}) check(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  check(cublasCreate(&on.cublas));
  check(cudaMalloc(&on.workspace, kWorkspaceBytes));
  return on;
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* memory = nullptr;
  check(cudaMalloc(&memory, values.size() * sizeof(T)));
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

void submit_step(const Machine& on, const Pointers& m, unsigned position, bool mistake) {
  if (mistake) check(cudaEventRecord(on.normed, on.stream));
  embed<<<kWidth / kThreads, kThreads, 0, on.stream>>>(m.embedding, m.tokens, position, m.x);
  for (const auto& layer : m.layers) {
    norm<<<1, kThreads, 0, on.stream>>>(m.x, m.normed);
    if (!mistake) check(cudaEventRecord(on.normed, on.stream));
    check(cudaStreamWaitEvent(on.side, on.normed));
    matvec<<<2 * kWidth / kRows, kThreads, 0, on.side>>>(layer.kv, m.normed, 2 * kWidth, kWidth, Then::store, m.kv);
    check(cudaEventRecord(on.kv_done, on.side));
    matvec<<<kWidth / kRows, kThreads, 0, on.stream>>>(layer.q, m.normed, kWidth, kWidth, Then::store, m.q);
    check(cudaStreamWaitEvent(on.stream, on.kv_done));
    attend<<<kHeads, kHeadWidth, 0, on.stream>>>(m.q, m.kv, position, layer.cache, m.attended);
    matvec<<<kWidth / kRows, kThreads, 0, on.stream>>>(layer.out, m.attended, kWidth, kWidth, Then::add, m.x);
    norm<<<1, kThreads, 0, on.stream>>>(m.x, m.normed);
    matvec<<<kHidden / kRows, kThreads, 0, on.stream>>>(layer.up, m.normed, kHidden, kWidth, Then::clip, m.hidden);
    matvec<<<kWidth / kRows, kThreads, 0, on.stream>>>(layer.down, m.hidden, kWidth, kHidden, Then::add, m.x);
  }
  norm<<<1, kThreads, 0, on.stream>>>(m.x, m.normed);
  multiply_with_cublas(on.cublas, on.stream, on.workspace, m.head, m.normed, m.logits);
  choose<<<1, kThreads, 0, on.stream>>>(m.logits, position, m.tokens);
}

void launch_step(const Machine& on, const Pointers& m, unsigned position, bool mistake, cudaGraphExec_t& exec) {
  check(cudaStreamBeginCapture(on.stream, cudaStreamCaptureModeThreadLocal));
  submit_step(on, m, position, mistake);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(on.stream, &graph));
  cudaGraphExecUpdateResultInfo why{};
  check(exec == nullptr ? cudaGraphInstantiate(&exec, graph, 0) : cudaGraphExecUpdate(exec, graph, &why));
  check(cudaGraphDestroy(graph));
  check(cudaGraphLaunch(exec, on.stream));
}

}  // namespace

int main(int argc, char** argv) try {
  const bool mistake = argc > 1 && std::string_view(argv[1]) == "--mistake";
  const Model model = random_model();
  const Machine on = open_machine();
  const auto m =
      make_memory<float*, int*>(model, [](const auto&, const auto& values, const char*) { return on_device(values); });

  submit_step(on, m, 0, false);  // once without capture: code is loaded at its first use
  check(cudaStreamSynchronize(on.stream));

  cudaGraphExec_t exec = nullptr;
  StepTimes times;
  for (unsigned position = 0; position < kSteps; ++position) {
    const auto begin = StepTimes::now();
    launch_step(on, m, position, mistake, exec);
    check(cudaStreamSynchronize(on.stream));
    times.add(begin);
  }

  std::vector<int> tokens(kSteps + 1);
  check(cudaMemcpy(tokens.data(), m.tokens, tokens.size() * sizeof(int), cudaMemcpyDeviceToHost));
  return report(tokens, decode_on_host(model), times);
} catch (const std::exception& error) {
  std::fprintf(stderr, "captured: %s\n", error.what());
  return 2;
}
