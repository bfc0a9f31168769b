// Devices that use each other's memory: access, copies, kernels that wait for each other, stores on their way, and
// deadlocks; each misuse is planted once.
#include "tests/cpu_driver/peer_fixture.h"

namespace nodewright {
namespace {

std::vector<CpuDriverOptions> every_schedule(int seeds) {
  std::vector<CpuDriverOptions> all(2);
  all[1].schedule = CpuSchedule::reverse;
  for (int seed = 1; seed <= seeds; ++seed) {
    all.emplace_back().schedule = CpuSchedule::seeded;
    all.back().seed = static_cast<uint64_t>(seed);
  }
  return all;
}

TEST_F(PeerTest, DevicesSayWhoMayAccessWhom) {
  begin({}, false);
  int can = 0, attribute = 0;
  EXPECT_OK(api().cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(1, can);
  EXPECT_OK(api().cuDeviceCanAccessPeer(&can, 1, 1));
  EXPECT_EQ(0, can);
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, api().cuDeviceCanAccessPeer(&can, 0, 2));
  EXPECT_OK(api().cuDeviceGetP2PAttribute(&attribute, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT_EQ(1, attribute);
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, api().cuCtxEnablePeerAccess(contexts_[0], 0)) << "its own";
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, api().cuCtxDisablePeerAccess(contexts_[1]));
  EXPECT_OK(api().cuCtxEnablePeerAccess(contexts_[1], 0));
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, api().cuCtxEnablePeerAccess(contexts_[1], 0));
  EXPECT_OK(api().cuCtxDisablePeerAccess(contexts_[1]));
}

TEST_F(PeerTest, AKernelWithoutAccessToItsPeerFaults) {
  begin({}, false);
  ASSERT_OK(launch_rank(0, 64, 1));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, wait(0));
  expect_reported(
      {"node 'sum@0', kernel peer_sum: field 'out' is memory of device 1, to which the launch's device 0 has "
       "no access (cuCtxEnablePeerAccess)",
       "of device 1 (0x"});
}

TEST_F(PeerTest, CopiesBetweenDevicesNeedNoAccess) {
  begin({}, false);
  use(0);
  ASSERT_OK(api().cuMemcpyPeerAsync(reinterpret_cast<CUdeviceptr>(y_[1]), contexts_[1],
                                    reinterpret_cast<CUdeviceptr>(x_[0]), contexts_[0], 64 * sizeof(float),
                                    streams_[0]));
  ASSERT_OK(wait(0));
  EXPECT_EQ(std::vector<float>(64, 1.0f), result(1, 64));
}

TEST_F(PeerTest, TwoDevicesSumUnderEverySchedule) {
  for (const bool checked : {false, true})
    for (CpuDriverOptions options : every_schedule(20)) {
      options.check_accesses = checked;
      begin(options);
      for (uint32_t epoch = 1; epoch <= 3; ++epoch)
        for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 200, epoch));
      for (int d = 0; d < 2; ++d) {
        ASSERT_OK(wait(d));
        ASSERT_EQ(std::vector<float>(200, 21.0f), result(d, 200)) << d << " seed " << options.seed;
      }
    }
}

// Two slots, as many exchanges as six, and the second step's epochs after the first's.
TEST_F(PeerTest, ChainsOfExchangesInGraphsSumUnderEverySchedule) {
  for (const CpuDriverOptions& options : every_schedule(30)) {
    begin(options);
    for (uint32_t step = 0; step < 2; ++step) {
      std::array<CUgraphExec, 2> execs{};
      std::array<CUgraph, 2> graphs{};
      for (size_t d = 0; d < 2; ++d) {
        use(static_cast<int>(d));
        ASSERT_OK(api().cuGraphCreate(&graphs[d], 0));
        std::vector<CUgraphNode> last;
        for (uint32_t k = 0; k < 6; ++k) {
          const float* from = k == 0 ? x_[d] : k % 2 == 1 ? z_[d] : y_[d];
          float* to = k % 2 == 1 ? y_[d] : z_[d];
          api().label(("l" + std::to_string(k)).c_str());
          last = {add_kernel(graphs[d], kernel_[d], 2, 64,
                             exchange(static_cast<int>(d), from, to, k, 100, 1 + 6 * step + k), last, {}, 8)};
        }
        execs[d] = instantiate(graphs[d]);
      }
      for (size_t d = 0; d < 2; ++d) {
        use(static_cast<int>(d));
        ASSERT_OK(api().cuGraphLaunch(execs[d], streams_[d]));
      }
      for (const int d : {1, 0}) ASSERT_OK(wait(d));
      // 1 and 20 become 21 in both, which the other five double.
      for (const int d : {0, 1})
        ASSERT_EQ(std::vector<float>(100, 21.0f * 32), result(d, 100)) << "seed " << options.seed;
      for (size_t d = 0; d < 2; ++d) {
        ASSERT_OK(api().cuGraphExecDestroy(execs[d]));
        ASSERT_OK(api().cuGraphDestroy(graphs[d]));
      }
    }
  }
}

// With one slot for all exchanges, the next overwrites what the peer has not taken yet.
TEST_F(PeerTest, OneSlotIsFoundOut) {
  int found = 0;
  for (const CpuDriverOptions& options : every_schedule(100)) {
    begin(options);
    for (uint32_t epoch = 2; epoch <= 6; epoch += 2)
      for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 250, epoch));
    const bool ended = wait(0) == CUDA_SUCCESS && wait(1) == CUDA_SUCCESS;
    if (!ended) expect_reported({"deadlock between devices"});
    found += ended ? 0 : 1;
  }
  EXPECT_GE(found, 2) << "of 102 schedules";
}

TEST_F(PeerTest, AMissingPeerIsADeadlockThatIsReportedAtOnce) {
  ASSERT_OK(launch_rank(0, 128, 8));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, wait(0));
  expect_reported(
      {"deadlock between devices: device 0, node 'sum@0', kernel peer_sum: 2 of 2 blocks wait, block (0,0,0), "
       "thread (0,0,0) for epoch 8 at address 0x",
       "at byte 0 of buffer", "where epoch 4294967295 is; no block can go on, and no packet is on its way"});
}

TEST_F(PeerTest, AQueryOfAWaitingKernelIsNoDeadlock) {
  ASSERT_OK(launch_rank(0, 64, 1));
  use(0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(CUDA_ERROR_NOT_READY, api().cuStreamQuery(streams_[0]));
  ASSERT_OK(launch_rank(1, 64, 1));
  EXPECT_OK(wait(0));
  EXPECT_EQ(std::vector<float>(64, 21.0f), result(0, 64));
}

TEST_F(PeerTest, LaunchesThatRunAtOnceWaitForTheirPeersLater) {
  CpuDriverOptions options;
  options.deferred = false;
  begin(options);
  for (uint32_t epoch = 1; epoch <= 3; ++epoch)
    for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 200, epoch));
  for (int d = 0; d < 2; ++d) ASSERT_OK(wait(d));
  EXPECT_EQ(std::vector<float>(200, 21.0f), result(0, 200));
}

TEST_F(PeerTest, TheWrongEpochIsADeadlockOfBoth) {
  ASSERT_OK(launch_rank(0, 64, 4));
  ASSERT_OK(launch_rank(1, 64, 6));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, wait(1));
  expect_reported(
      {"device 0, node 'sum@0'", "for epoch 4", "where epoch 6 is", "device 1, node 'sum@1'", "for epoch 6"});
}

// Five blocks, and room for four: the fifth would push what the peer's first four wait for when they are swapped.
TEST_F(PeerTest, MoreBlocksThanFitAreADeadlockWhereEachWaitsForAllOthers) {
  constexpr unsigned kShared = 48 << 10;  // four blocks an SM
  CpuDriverOptions options;
  options.sm_count = 1;
  begin(options);
  ASSERT_OK(launch_rank(0, 5 * 64, 1, 0, kShared));  // blocks wait for their equals: two waves would do
  ASSERT_OK(launch_rank(1, 5 * 64, 1, 0, kShared));
  EXPECT_OK(wait(0));
  EXPECT_OK(wait(1));
  options.schedule = CpuSchedule::reverse;
  begin(options);
  ASSERT_OK(launch_rank(0, 64, 1, 0, kShared));  // of five blocks of device 1, the first alone finds its equal
  ASSERT_OK(launch_rank(1, 5 * 64, 1, 0, kShared));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, wait(1));
  expect_reported(
      {"device 1, node 'sum@1', kernel peer_sum: 4 of 5 blocks wait, 1 do not fit on the device beside them"});
}

TEST_F(PeerTest, TheAbortWordEndsTheWait) {
  ASSERT_OK(launch_rank(0, 64, 1));
  *aborted_ = 1;
  EXPECT_OK(wait(0));
  *aborted_ = 0;
  for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 64, 2));
  for (int d = 0; d < 2; ++d) EXPECT_OK(wait(d));
  EXPECT_EQ(std::vector<float>(64, 21.0f), result(0, 64)) << "nothing had to be repaired";
}

TEST_F(PeerTest, TakingBeforePushingIsADeadlock) {
  for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 64, 1, 6));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, wait(0));
  expect_reported({"deadlock between devices: device 0", "; device 1"});
}

// What a flag says of data beside it holds where stores arrive in order, as in the forward schedule, and not elsewhere.
TEST_F(PeerTest, AFlagBesideTheDataIsFoundOut) {
  int wrong = 0;
  for (const CpuDriverOptions& options : every_schedule(10)) {
    begin(options);
    for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 64, 1, 5));
    for (int d = 0; d < 2; ++d) EXPECT_OK(wait(d));
    const bool right = result(0, 63) == std::vector<float>(63, 21.0f) && result(1, 63) == std::vector<float>(63, 21.0f);
    if (options.schedule != CpuSchedule::seeded) {
      EXPECT_EQ(options.schedule == CpuSchedule::forward, right);
    }
    wrong += right ? 0 : 1;
  }
  EXPECT_GE(wrong, 6) << "of 12 schedules";
}

TEST_F(PeerTest, CheckedKernelsTouchPacketsByPushAndTakeAlone) {
  const std::pair<int, const char*> misuses[] = {
      {1, "an access before wait_for_inputs(), take of 8 bytes, field 'in'"},
      {2, "an access to PeerIn that is no take(), read of 4 bytes, field 'in'"},
      {3, "a push() through a field that is not PeerOut"},
      {4, "an access to PeerOut that is no push(), write of 8 bytes"}};
  for (const auto& [planted, words] : misuses) {
    CpuDriverOptions options;
    options.check_accesses = true;
    begin(options);
    for (int d = 0; d < 2; ++d) ASSERT_OK(launch_rank(d, 64, 1, planted));
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, wait(0)) << planted;
    expect_reported({words});
  }
}

TEST_F(PeerTest, MoreStoresThanABlockMayHaveOnTheirWayAllArrive) {
  const std::string text = R"(
#include "kernels_src/device/packets.cuh"
namespace nodewright { struct Many { PeerOut<Packet> out; int64_t each; }; }
NODEWRIGHT_KERNEL(many, Many, 64) {
  wait_for_inputs();
  for (int64_t i = 0; i < args.each; ++i)
    push(args.out.data + threadIdx.x * args.each + i, static_cast<float>(i), 3u);
})";
  struct Many {
    PeerOut<Packet> out;
    int64_t each;
  };
  constexpr int64_t kEach = 200;
  CpuDriverOptions options;
  options.schedule = CpuSchedule::reverse;  // nothing arrives before it must
  begin(options);
  use(1);
  Packet* to = allocate<Packet>(64 * kEach);
  use(0);
  const CUfunction many = load("many", text);
  for (const CUstream stream : {streams_[0], CU_STREAM_LEGACY}) {
    use(1);
    ASSERT_OK(api().cuMemsetD8(reinterpret_cast<CUdeviceptr>(to), 0, 64 * kEach * sizeof(Packet)));
    use(0);
    ASSERT_OK(launch(many, 1, 64, Many{{to, 64 * kEach}, kEach}, 0, stream));
    ASSERT_OK(api().cuStreamSynchronize(stream));
    use(1);
    for (const Packet& packet : download(to, 64 * kEach)) ASSERT_EQ(3u, packet.epoch);
  }
}

}  // namespace
}  // namespace nodewright
