// Two devices of the CPU driver and a kernel that sums over both: each sends its values to the other and adds what
// comes. `planted` breaks it in one way.
#pragma once

#include <array>

#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {

struct PeerSum {
  In<float> x;           // [n]
  Out<float> y;          // [n]
  PeerOut<Packet> out;   // [n], the other device's `in`
  PeerIn<Packet> in;     // [n]
  In<uint32_t> aborted;  // [1]
  ExchangeNumber number;
  uint32_t epoch;
  int32_t planted;
  int32_t n;
};

inline const std::string kPeerSum = R"(
#include "kernels_src/device/packets.cuh"
namespace nodewright {
struct PeerSum {
  In<float> x; Out<float> y; PeerOut<Packet> out; PeerIn<Packet> in; In<uint32_t> aborted;
  ExchangeNumber number; uint32_t epoch; int32_t planted; int32_t n;
};
}
NODEWRIGHT_KERNEL(peer_sum, PeerSum, 64) {
  float* sums = reinterpret_cast<float*>(shared_memory());  // [2]
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int planted = args.planted;
  if (planted == 1) look(args.in.data);
  wait_for_inputs();
  if (planted == 2) args.y.data[0] = static_cast<float>(args.in.data[0].epoch);
  if (planted == 3) push(reinterpret_cast<Packet*>(args.y.data), 1.0f, 1);
  if (planted == 4) *reinterpret_cast<uint64_t*>(args.out.data) = 0;
  const float mine = i < args.n ? args.x.data[i] : 0.0f;
  if (planted == 5) {                      // the data first, and a flag for it after: nothing orders the two
    if (i < args.n - 1) push(args.out.data + i, mine, args.epoch);
    if (i == 0) push(args.out.data + args.n - 1, 0.0f, args.epoch);
    const Packet flag = look(args.in.data + args.n - 1);
    if (i < args.n - 1) {
      take(args.in.data + args.n - 1, flag, args.epoch, {args.aborted.data, nullptr});
      args.y.data[i] = mine + __uint_as_float(look(args.in.data + i).bits);
    }
    return;
  }
  if (i < args.n && planted != 6) push(args.out.data + i, mine, args.epoch);
  const float sum = warp_sum(mine);        // the block's threads meet before they wait, and after
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (i < args.n) {
    const float theirs = take(args.in.data + i, look(args.in.data + i), args.epoch, {args.aborted.data, nullptr});
    if (planted == 6) push(args.out.data + i, mine, args.epoch);  // takes before it pushes
    args.y.data[i] = mine + theirs;
  }
  __syncthreads();
})";

class PeerTest : public CpuDriverTest {
 protected:
  void SetUp() override { begin({}); }
  void TearDown() override { end(); }

  void begin(CpuDriverOptions options, bool access = true) {
    end();
    options.devices = 2;
    start(options);
    contexts_[0] = context_;
    streams_[0] = stream_;
    ASSERT_OK(api().cuDevicePrimaryCtxRetain(&contexts_[1], 1));
    use(1);
    ASSERT_OK(api().cuStreamCreate(&streams_[1], CU_STREAM_NON_BLOCKING));
    for (int d = 0; d < 2 && access; ++d) {
      use(d);
      ASSERT_OK(api().cuCtxEnablePeerAccess(contexts_[1 - d], 0));
    }
    use(0);
    void* pinned = nullptr;
    ASSERT_OK(api().cuMemHostAlloc(&pinned, 4, 0));
    aborted_ = static_cast<uint32_t*>(pinned);
    *aborted_ = 0;
    for (int d = 0; d < 2; ++d) {
      use(d);
      x_[d] = upload(std::vector<float>(kMost, d == 0 ? 1.0f : 20.0f));
      y_[d] = allocate<float>(kMost);
      z_[d] = allocate<float>(kMost);
      in_[d] = allocate<Packet>(2 * kMost);
      kernel_[d] = load("peer_sum", kPeerSum, options.check_accesses);
    }
    use(0);
  }

  void end() {
    if (contexts_[1] == nullptr) return;
    api().clear_error();
    use(1);
    api().cuStreamDestroy(streams_[1]);
    use(0);
    api().cuMemFreeHost(aborted_);
    for (const CUdeviceptr address : memory_) api().cuMemFree(address);
    memory_.clear();
    api().cuDevicePrimaryCtxRelease(1);
    contexts_[1] = nullptr;
    stop();
  }

  void use(int d) { ASSERT_OK(api().cuCtxSetCurrent(contexts_[static_cast<size_t>(d)])); }

  // Exchange `number` from x to y, in slot number % 2.
  PeerSum exchange(int d, const float* x, float* y, uint32_t number, int n, uint32_t epoch, int planted = 0) const {
    const size_t slot = number % 2 * kMost, count = static_cast<uint64_t>(n);
    const auto own = static_cast<size_t>(d);
    return {
        {x, count}, {y, count}, {in_[1 - own] + slot, count}, {in_[own] + slot, count}, {aborted_, 1}, {number}, epoch,
        planted,    n};
  }
  CUresult launch_rank(int d, int n, uint32_t epoch, int planted = 0, unsigned shared_bytes = 8) {
    use(d);
    const auto own = static_cast<size_t>(d);
    api().label(("sum@" + std::to_string(d)).c_str());
    return launch(kernel_[own], static_cast<unsigned>(n + 63) / 64, 64,
                  exchange(d, x_[own], y_[own], epoch, n, epoch, planted), shared_bytes, streams_[own]);
  }
  CUresult wait(int d) {
    use(d);
    return api().cuStreamSynchronize(streams_[static_cast<size_t>(d)]);
  }
  std::vector<float> result(int d, int n) {
    use(d);
    return download(y_[static_cast<size_t>(d)], static_cast<size_t>(n));
  }
  void expect_reported(std::initializer_list<const char*> parts) const {
    for (const char* part : parts)
      EXPECT_NE(std::string::npos, api().report().find(part)) << part << " in: " << api().report();
  }

  static constexpr size_t kMost = 512;
  std::array<CUcontext, 2> contexts_{};
  std::array<CUstream, 2> streams_{};
  std::array<float*, 2> x_{}, y_{}, z_{};
  std::array<Packet*, 2> in_{};
  std::array<CUfunction, 2> kernel_{};
  uint32_t* aborted_ = nullptr;
};

}  // namespace nodewright
