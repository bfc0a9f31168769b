// Thread-block clusters: ranks, the cluster's barrier, and other blocks' shared memory; each misuse is planted once.
#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {
namespace {

struct Words {
  In<unsigned> x;
  Out<unsigned> y;
  int64_t planted;
};

const std::string kWords = R"(
#include "kernels_src/device/cluster.cuh"
namespace nodewright { struct Words { In<unsigned> x; Out<unsigned> y; int64_t planted; }; }
)";

// Every thread stores a float4 into each block of the cluster, reads back a row that others wrote, and after a second
// barrier its neighbour's sum. x: one word a thread; y: two words a thread, the sum of what the cluster's threads of
// the same index hold and the neighbour's sum of a row; a word more a block: its rank.
const std::string kExchange = kWords + R"(
struct alignas(16) Row { unsigned from, rank, value, thread; };
NODEWRIGHT_KERNEL(exchange, Words, 256) {
  Row* rows = reinterpret_cast<Row*>(shared_memory());  // [blocks of the cluster, threads]
  const int rank = cluster_rank(), blocks = static_cast<int>(args.planted);
  const unsigned threads = blockDim.x, i = threadIdx.x;
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned* sums = reinterpret_cast<unsigned*>(rows + static_cast<unsigned>(blocks) * threads);
  cluster_arrive();
  wait_for_inputs();
  const unsigned value = args.x.data[block * threads + i];
  cluster_wait();
  for (int to = 0; to < blocks; ++to)
    store_to_block(to, rows + static_cast<unsigned>(rank) * threads + i,
                   Row{block, static_cast<unsigned>(rank), value, i});
  cluster_arrive();
  cluster_wait();
  unsigned sum = 0;
  for (int from = 0; from < blocks; ++from) {
    const Row row = rows[static_cast<unsigned>(from) * threads + i];
    if (row.rank != static_cast<unsigned>(from) || row.thread != i) __trap();
    sum += row.value;
  }
  sums[i] = sum + static_cast<unsigned>(rank);
  cluster_arrive();
  cluster_wait();
  const int neighbour = (rank + 1) % blocks;
  unsigned* y = args.y.data + block * (2 * threads + 1);
  y[i] = sum;
  y[threads + i] = load_from_block(neighbour, sums + (i + 1) % threads);
  if (i == 0) y[2 * threads] = static_cast<unsigned>(rank);
  cluster_arrive();
  cluster_wait();
})";

// `planted` chooses the misuse; 0 is the correct kernel: block 0 gathers a word of every block.
const std::string kMisuse = kWords + R"(
NODEWRIGHT_KERNEL(misuse, Words, 64) {
  unsigned* own = reinterpret_cast<unsigned*>(shared_memory());
  const int rank = cluster_rank(), planted = static_cast<int>(args.planted);
  const unsigned i = threadIdx.x;
  wait_for_inputs();
  if (planted == 20) {                                                     // blocks that do without their cluster
    if (rank == 1) __syncthreads();
    if (rank == 1 && i == 63) args.y.data[blockIdx.x / 2] = 102;
    return;
  }
  if (planted == 1 && rank == 1 && i >= 32) __syncthreads();               // never arrives at the first barrier
  if (planted == 2 && rank == 1 && i == 40) __shfl_sync(0xffffffffu, 1, 0);  // nor does this lane
  if (planted == 3) cluster_wait();                                        // without an arrival
  if (planted == 4) store_to_block(1, own, 1u);                            // before all blocks have started
  if (planted == 5 && i % 2 == 1)
    cluster_arrive();                                                      // another line than the other lanes'
  else
    cluster_arrive();
  if (planted == 6) cluster_arrive();                                      // twice
  if (planted == 7 && rank == 0) load_from_block(1, own);                  // arrived, not waited
  cluster_wait();
  if (planted == 8) {
    if (rank == 1) return;                                                 // the barrier holds for those that go on
    cluster_arrive();
    cluster_wait();
    load_from_block(1, own);
  }
  if (planted == 9) store_to_block(2, own + 2, 1u);                        // a cluster of two
  if (planted == 10) load_from_block(-1, own);
  if (planted == 11) store_to_block(1, const_cast<unsigned*>(args.x.data), 1u);  // not shared memory
  if (planted == 12) load_from_block(1, own + 64);                         // beyond it
  if (planted == 13) load_from_block(1, reinterpret_cast<const uint2*>(own + 1));  // not aligned
  if (planted == 14) own[64 + i] = 1u;                                     // beyond the block's own
  if (planted == 15 && rank == 1 && i == 0) store_to_block(0, own + 63, args.x.data[1 << 20]);  // an undeclared read
  if (planted == 16 && rank == 1 && i == 7) __trap();
  if (planted == 17 && i >= 32) return;                                    // ended threads are not waited for
  if (planted == 18 && rank == 1 && i == 9)
    for (volatile const unsigned* x = args.x.data; *x == 0;) {
    }
  if (planted == 19 && rank == 1 && i == 3) own[i] = *reinterpret_cast<const unsigned*>(16);  // an address of nobody
  if (i == 0) store_to_block(0, own + rank, args.x.data[rank] + 1);
  cluster_arrive();
  cluster_wait();
  if (rank == 0 && i == 0) args.y.data[blockIdx.x / 2] = own[0] * 100 + own[1];
})";

class ClusterTest : public CpuDriverTest {
 protected:
  CUresult launch_cluster(CUfunction function, const unsigned (&grid)[3], const unsigned (&cluster)[3],
                          unsigned threads, unsigned shared_bytes, Words args) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {cluster[0], cluster[1], cluster[2]};
    const CUlaunchConfig config{grid[0], grid[1], grid[2], threads, 1, 1, shared_bytes, stream_, &attribute, 1};
    void* params[] = {&args};
    return api().cuLaunchKernelEx(&config, function, params, nullptr);
  }

  // Two clusters of two blocks of 64 threads with 64 words of shared memory each, and what came of it.
  CUresult misuse(int64_t planted, const CpuDriverOptions& options, bool checked) {
    start(options);
    const unsigned* x = upload(std::vector<unsigned>{0, 1});
    y_ = allocate<unsigned>(2);
    api().label("l0.gather");
    EXPECT_OK(launch_cluster(load("misuse", kMisuse, checked), {4, 1, 1}, {2, 1, 1}, 64, 256,
                             Words{{x, 2}, {y_, 2}, planted}));
    return synchronize();
  }

  void expect_reported(int64_t planted, std::initializer_list<const char*> parts) {
    for (const CpuSchedule schedule : kSchedules)
      for (const bool checked : {false, true}) {
        EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, misuse(planted, {.schedule = schedule, .check_accesses = checked}, checked))
            << planted;
        const std::string report = api().report();
        for (const char* part : parts) EXPECT_NE(std::string::npos, report.find(part)) << part << " in: " << report;
        EXPECT_NE(std::string::npos, report.find("node 'l0.gather', kernel misuse")) << report;
      }
  }

  static constexpr CpuSchedule kSchedules[] = {CpuSchedule::forward, CpuSchedule::reverse, CpuSchedule::seeded};
  unsigned* y_ = nullptr;
};

struct ExchangeCase {
  unsigned grid[3], cluster[3], threads;
};

TEST_F(ClusterTest, BlocksExchangeTheirSharedMemoryUnderEverySchedule) {
  const ExchangeCase cases[] = {{{6, 1, 1}, {2, 1, 1}, 96},    {{16, 1, 1}, {8, 1, 1}, 256},
                                {{32, 1, 1}, {16, 1, 1}, 128}, {{4, 4, 4}, {2, 2, 2}, 33},
                                {{2, 6, 2}, {1, 3, 2}, 64},    {{3, 1, 1}, {1, 1, 1}, 64},
                                {{16, 1, 1}, {16, 1, 1}, 256}, {{8, 2, 1}, {4, 1, 1}, 1}};
  for (const CpuSchedule schedule : kSchedules)
    for (const bool checked : {false, true})
      for (const ExchangeCase& c : cases) {
        start({.schedule = schedule, .seed = c.threads, .check_accesses = checked});
        const CUfunction exchange = load("exchange", kExchange, checked);
        ASSERT_OK(api().cuFuncSetAttribute(exchange, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
        ASSERT_OK(api().cuFuncSetAttribute(exchange, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 128 << 10));
        const unsigned blocks = c.grid[0] * c.grid[1] * c.grid[2];
        const unsigned of_cluster = c.cluster[0] * c.cluster[1] * c.cluster[2];
        std::vector<unsigned> x(blocks * c.threads);
        for (unsigned i = 0; i < x.size(); ++i) x[i] = i * 2654435761u >> 8;
        unsigned* y = allocate<unsigned>(blocks * (2 * c.threads + 1));
        ASSERT_OK(launch_cluster(exchange, c.grid, c.cluster, c.threads, (of_cluster * 16 + 4) * c.threads,
                                 Words{{upload(x), x.size()}, {y, blocks * (2 * c.threads + 1)}, of_cluster}));
        ASSERT_OK(synchronize());
        const std::vector<unsigned> result = download(y, blocks * (2 * c.threads + 1));
        const auto block_at = [&](unsigned bx, unsigned by, unsigned bz) {
          return bx + c.grid[0] * (by + c.grid[1] * bz);
        };
        for (unsigned b = 0; b < blocks; ++b) {
          const unsigned at[3] = {b % c.grid[0], b / c.grid[0] % c.grid[1], b / c.grid[0] / c.grid[1]};
          unsigned first[3], rank = 0;
          for (int axis = 2; axis >= 0; --axis) {
            first[axis] = at[axis] / c.cluster[axis] * c.cluster[axis];
            rank = rank * c.cluster[axis] + at[axis] % c.cluster[axis];
          }
          ASSERT_EQ(result[b * (2 * c.threads + 1) + 2 * c.threads], rank) << "block " << b;
          const auto sum_of = [&](unsigned thread) {
            unsigned sum = 0;
            for (unsigned i = 0; i < of_cluster; ++i)
              sum += x[block_at(first[0] + i % c.cluster[0], first[1] + i / c.cluster[0] % c.cluster[1],
                                first[2] + i / c.cluster[0] / c.cluster[1]) *
                           c.threads +
                       thread];
            return sum;
          };
          for (unsigned i = 0; i < c.threads; ++i) {
            ASSERT_EQ(result[b * (2 * c.threads + 1) + i], sum_of(i)) << "block " << b << ", thread " << i;
            ASSERT_EQ(result[b * (2 * c.threads + 1) + c.threads + i],
                      sum_of((i + 1) % c.threads) + (rank + 1) % of_cluster)
                << "block " << b << ", thread " << i;
          }
        }
      }
}

TEST_F(ClusterTest, ACorrectKernelRunsCheckedOrNotAndEndedThreadsAreNotWaitedFor) {
  for (const CpuSchedule schedule : kSchedules)
    for (const bool checked : {false, true})
      for (const int64_t planted : {0, 17, 20}) {
        ASSERT_OK(misuse(planted, {.schedule = schedule, .check_accesses = checked}, checked));
        EXPECT_EQ((std::vector<unsigned>{102, 102}), download(y_, 2));
      }
}

TEST_F(ClusterTest, ABarrierThatSomeThreadsNeverReachIsADeadlock) {
  expect_reported(1,
                  {"deadlock: some threads wait at a cluster barrier, others at __syncthreads", "block (", "thread ("});
  expect_reported(2, {"deadlock: some threads wait at a cluster barrier, others in a warp collective"});
}

TEST_F(ClusterTest, ArrivalsAndWaitsTakeTurns) {
  expect_reported(3, {"cluster_wait() without cluster_arrive()"});
  expect_reported(6, {"cluster_arrive() twice"});
  expect_reported(5, {"divergent cluster barrier"});
}

TEST_F(ClusterTest, AnotherBlocksMemoryIsThereFromTheFirstBarrierUntilItsThreadsEnd) {
  expect_reported(4, {"before the cluster's first barrier", "write of 4 bytes"});
  expect_reported(7, {"before the cluster's first barrier", "read of 4 bytes", ",0,0), thread"});
  expect_reported(8, {"a block whose threads have all ended", "read of 4 bytes"});
}

TEST_F(ClusterTest, ALaunchBeginsBeforeItsFirstBarrierWhateverRanBefore) {
  ASSERT_OK(misuse(0, {.workers = 1}, false));
  ASSERT_OK(launch_cluster(load("misuse", kMisuse), {2, 1, 1}, {2, 1, 1}, 64, 256, Words{{y_, 2}, {y_, 2}, 4}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("before the cluster's first barrier")) << api().report();
}

TEST_F(ClusterTest, AWrongRankOrAddressIsReported) {
  expect_reported(9, {"a block rank outside the cluster"});
  expect_reported(10, {"a block rank outside the cluster"});
  expect_reported(11, {"an address outside the calling block's shared memory", "write of 4 bytes"});
  expect_reported(12, {"an address outside the calling block's shared memory", "read of 4 bytes"});
  expect_reported(13, {"not aligned"});
}

TEST_F(ClusterTest, WhatOneBlockDoesWrongIsReportedWithThatBlock) {
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, misuse(14, {.check_accesses = true}, true));
  EXPECT_NE(std::string::npos, api().report().find("beyond the shared memory of the block")) << api().report();
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, misuse(15, {.workers = 1, .check_accesses = true}, true));
  EXPECT_NE(std::string::npos, api().report().find("an undeclared read")) << api().report();
  EXPECT_NE(std::string::npos, api().report().find("block (1,0,0), thread (0,0,0)")) << api().report();
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, misuse(16, {.workers = 1}, false));
  EXPECT_NE(std::string::npos, api().report().find("block (1,0,0), thread (7,0,0)")) << api().report();
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, misuse(14, {}, false)) << "the guard page of the block's own memory";
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, misuse(19, {.workers = 1}, false));
  EXPECT_NE(std::string::npos, api().report().find("block (1,0,0), thread (3,0,0)")) << api().report();
  ASSERT_OK(misuse(0, {.workers = 1}, false)) << "a new context starts without what they left";
}

TEST_F(ClusterTest, AThreadThatNeverEndsTimesOutWithItsBlock) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call that it intercepts";
#endif
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, misuse(18, {.workers = 1, .launch_timeout_ms = 100}, false));
  EXPECT_NE(std::string::npos, api().report().find("block (1,0,0), thread (9,0,0)")) << api().report();
}

TEST_F(ClusterTest, AsManyFitAsTheDeviceHasRoomForTheirBlocks) {
  start({.sm_count = 9});
  const CUfunction function =
      load("wide", kWords + "NODEWRIGHT_KERNEL(wide, Words, 1024) { wait_for_inputs(), args.y.data[0] = 1; }");
  const auto count = [&](unsigned blocks, unsigned cluster, unsigned threads) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {cluster, 1, 1};
    const CUlaunchConfig config{blocks, 1, 1, threads, 1, 1, 0, stream_, &attribute, 1};
    int clusters = -1;
    const CUresult result = api().cuOccupancyMaxActiveClusters(&clusters, function, &config);
    return std::pair(result, clusters);
  };
  EXPECT_EQ(count(8, 1, 1024), std::pair(CUDA_SUCCESS, 9));
  EXPECT_EQ(count(8, 2, 1024), std::pair(CUDA_SUCCESS, 4));
  EXPECT_EQ(count(8, 4, 512), std::pair(CUDA_SUCCESS, 4)) << "two blocks an SM";
  EXPECT_EQ(count(9, 2, 64), std::pair(CUDA_ERROR_INVALID_VALUE, -1)) << "the grid is not of whole clusters";
  EXPECT_EQ(count(32, 16, 64), std::pair(CUDA_ERROR_INVALID_CLUSTER_SIZE, -1));
}

TEST_F(ClusterTest, ALaunchWithoutClustersHasThemOfOneBlock) {
  const unsigned* x = upload(std::vector<unsigned>{0, 1});
  y_ = allocate<unsigned>(2);
  const CUfunction misuse = load("misuse", kMisuse);
  ASSERT_OK(launch(misuse, 1, 64, Words{{x, 2}, {y_, 2}, 0}, 256));
  ASSERT_OK(synchronize());
  EXPECT_EQ(~0u + 100u, download(y_, 1)[0]) << "own[1] is as nobody has written it";
  ASSERT_OK(launch(misuse, 1, 64, Words{{x, 2}, {y_, 2}, 10}, 256));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
}

TEST_F(ClusterTest, BelowCapabilityNineAKernelThatAsksForItsClusterTraps) {
  start({.compute_capability = 80});
  const unsigned* x = upload(std::vector<unsigned>{0, 1});
  ASSERT_OK(launch(load("misuse", kMisuse), 1, 64, Words{{x, 2}, {allocate<unsigned>(2), 2}, 0}, 256));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("below compute capability 9.0")) << api().report();
}

}  // namespace
}  // namespace nodewright
