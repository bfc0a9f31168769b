// A step of eight small exchanges on both GPUs, for launch_skew.cpp and abandoned_step.cpp.
#pragma once

#include "bench/two_gpus/pair.h"

namespace two_gpus {

class SmallStep {
 public:
  static constexpr int kExchanges = 8, kCount = 3072, kLogged = 1 << 17;
  const Pair& pair;

  explicit SmallStep(const Pair& pair) : pair(pair) {
    for (int d = 0; d < 2; ++d) {
      x_[d] = pair.memory(d, kCount * 4), y_[d] = pair.memory(d, kCount * 4);
      packets_[d] = pair.memory(d, 2 * kCount * 8), step_[d] = pair.memory(d, 64),
      waits_[d] = pair.memory(d, kLogged * 4);
    }
    for (int d = 0; d < 2; ++d) exec_[d] = build(d);
    recover();
  }

  // Launches rank d's graph; the microseconds that the call took.
  double launch(int d) {
    pair.use(d);
    const double from = microseconds();
    MUST(cuGraphLaunch(exec_[d], pair.stream[d]));
    return microseconds() - from;
  }
  // After an abandoned step: one number for the next step of both ranks, beyond all before, and a clear abort word. The
  // packets stay as they are. Numbers go on at a multiple of kLogged, where a log of waits begins.
  void recover() {
    pair.clear_abort();
    next_ += kLogged;
    for (int d = 0; d < 2; ++d) pair.use(d), MUST(cuMemcpyHtoD(step_[d], &next_, 4)), MUST(cuCtxSynchronize());
  }
  // How long the first packet of each step since recover() took, the first kLogged of them.
  std::vector<double> first_waits_us(int d, int steps) {
    std::vector<unsigned> ns(steps);
    pair.use(d), MUST(cuMemcpyDtoH(ns.data(), waits_[d], steps * 4L));
    std::vector<double> us;
    for (const unsigned each : ns) us.push_back(each * 1e-3);
    return us;
  }
  // Whether both ranks hold the sums of the last step, which begins with ones: 2^kExchanges.
  bool sums_are_right() {
    std::vector<float> x(kCount);
    for (int d = 0; d < 2; ++d) {
      pair.use(d), MUST(cuMemcpyDtoH(x.data(), x_[d], kCount * 4));
      for (const float each : x)
        if (each != 1 << kExchanges) return false;
    }
    return true;
  }

 private:
  CUgraphExec build(int d) {
    pair.use(d);
    Chain chain;
    for (unsigned k = 0; k < kExchanges; ++k) {
      int count = kCount;
      CUdeviceptr from = k & 1 ? y_[d] : x_[d], to = k & 1 ? x_[d] : y_[d], waits = k == 0 ? waits_[d] : 0;
      AbortWords abort = pair.abort(d);
      void* arguments[] = {&from, &to, &packets_[1 - d], &packets_[d], &count, &step_[d], &k, &abort, &waits};
      chain.add(pair.kernel(d, "exchange"), kCount / 256, 256, 0, arguments);
    }
    void* arguments[] = {&step_[d]};
    chain.add(pair.kernel(d, "count_step"), 1, 32, 0, arguments, true);
    return chain.instantiate(pair.stream[d]);
  }

  CUdeviceptr x_[2], y_[2], packets_[2], step_[2], waits_[2];
  CUgraphExec exec_[2];
  unsigned next_ = 0;
};

}  // namespace two_gpus
