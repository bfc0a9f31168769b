// Checked images: every access against what the arguments declare. Each checker has a planted bug that it must report.
#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {
namespace {

struct Scale {
  Frozen<float> gain;
  Settled<float> offset;
  SettledInOut<float> pool;
  In<float> x;
  Out<float> y;
  int64_t planted;
};

// `planted` chooses the bug; 0 is the correct kernel.
const std::string kScale = R"(
namespace nodewright {
struct Scale {
  Frozen<float> gain; Settled<float> offset; SettledInOut<float> pool; In<float> x; Out<float> y; int64_t planted;
};
}
NODEWRIGHT_KERNEL(scale, Scale, 64) {
  const unsigned i = threadIdx.x;
  if (args.planted == 13 && i == 5) return;                                  // an early return before the wait
  if (args.planted == 14) {                                                  // a wait in one arm of an if
    if (i != 6) wait_for_inputs();
    return;
  }
  if (args.planted == 15) {                                                  // a wait in a loop of no turns
    for (unsigned turn = 0; turn < i; ++turn) wait_for_inputs();
    return;
  }
  const float gain = args.gain.data[i];
  float early = args.offset.data[i] + args.pool.data[(i + 1) % 64];
  if (args.planted == 4) early = args.x.data[i];
  if (args.planted == 11) args.pool.data[i] = early;                         // written before the wait
  wait_for_inputs();
  args.pool.data[i] = early;
  if (args.planted == 12) const_cast<float*>(args.offset.data)[i] = early;   // store through Settled
  float v = args.x.data[i] * gain + early;
  if (args.planted == 1) v += args.x.data[i + 64];                            // undeclared read
  if (args.planted == 2) args.y.data[i + 64] = v;                            // undeclared write
  if (args.planted == 3) const_cast<float*>(args.x.data)[i] = v;             // store through In
  if (args.planted == 5) const_cast<float*>(args.gain.data)[i] = v;          // store through Frozen
  if (args.planted == 6) v += args.y.data[i];                                // read of Out
  if (args.planted == 7) v += __uint_as_float(load_frozen_16(args.x.data).x);  // frozen load of In
  if (args.planted == 8) atomicAdd(args.y.data, 1.0f);                       // atomics read
  if (args.planted == 9) v += reinterpret_cast<float*>(shared_memory())[i];  // beyond shared memory
  if (args.planted == 10) v += reinterpret_cast<float*>(shared_memory())[static_cast<int>(i) - 64];  // before it
  if (args.planted == 16 && i == 37) return;                                 // an element of Out is left out
  if (args.planted == 17) {                                                  // stored in vectors, the last one missing
    if (i < 15) reinterpret_cast<float4*>(args.y.data)[i] = make_float4(v, v, v, v);
    return;
  }
  args.y.data[i] = v;
})";

// The same, of which the launch writes what it likes.
const std::string kPart = R"(
namespace nodewright {
struct Part { PartialOut<float> y; Out<float> all; };
}
NODEWRIGHT_KERNEL(part, Part, 64) {
  wait_for_inputs();
  if (threadIdx.x < 3) args.y.data[threadIdx.x] = 1.0f;
  if (threadIdx.x < args.all.count) args.all.data[threadIdx.x] = 2.0f;
})";
struct Part {
  PartialOut<float> y;
  Out<float> all;
};

class AccessTest : public CpuDriverTest {
 protected:
  // Runs the kernel with `planted` on 64 of the 128 elements of each buffer; returns the result of the launch.
  CUresult run(int64_t planted, bool checked = true) {
    start({.check_accesses = true});
    const CUfunction scale = load("scale", kScale, checked);
    const std::vector<float> twos(128, 2.0f);
    const std::vector<float> zeros(128, 0.0f);
    const Scale args{{upload(twos), 64},
                     {upload(zeros), 64},
                     {upload(zeros), 64},
                     {upload(twos), 64},
                     {y_ = allocate<float>(128), 64},
                     planted};
    api().label("l0.scale");
    EXPECT_OK(launch(scale, 1, 64, args, 128));
    return synchronize();
  }

  void expect_reported(int64_t planted, std::initializer_list<const char*> parts) {
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, run(planted)) << planted;
    const std::string report = api().report();
    for (const char* part : parts) EXPECT_NE(std::string::npos, report.find(part)) << part << " in: " << report;
    EXPECT_EQ(std::string::npos, report.find('\n'));
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, api().cuCtxSynchronize()) << "sticky";
  }

  float* y_ = nullptr;
};

TEST_F(AccessTest, ACorrectKernelPassesTheChecks) {
  ASSERT_OK(run(0));
  EXPECT_EQ(4.0f, download(y_, 64)[63]);
}

TEST_F(AccessTest, AnUndeclaredReadIsReportedByNodeAndField) {
  expect_reported(1, {"node 'l0.scale'", "kernel scale", "an undeclared read", "4 bytes", "nearest field 'x' byte 256",
                      "at byte 256 of buffer", "block (0,0,0)", "thread (0,0,0)"});
}

TEST_F(AccessTest, AnUndeclaredWriteIsReportedByNodeAndField) {
  expect_reported(2, {"node 'l0.scale'", "an undeclared write", "nearest field 'y' byte 256", "buffer"});
}

TEST_F(AccessTest, AStoreThroughInIsReportedByNodeAndField) {
  expect_reported(3, {"node 'l0.scale'", "a store through In", "field 'x' byte 0"});
}

TEST_F(AccessTest, AnInputTouchedBeforeTheWaitIsReported) {
  expect_reported(4, {"before wait_for_inputs()", "field 'x'"});
}

TEST_F(AccessTest, SettledMemoryIsReadBeforeTheWaitAndWrittenAfterItWhereTheFieldSaysSo) {
  expect_reported(11, {"before wait_for_inputs()", "field 'pool'"});
  expect_reported(12, {"a store through In", "field 'offset'"});
}

TEST_F(AccessTest, AStoreThroughFrozenIsReported) { expect_reported(5, {"a store through Frozen", "field 'gain'"}); }

TEST_F(AccessTest, AReadOfOutIsReported) { expect_reported(6, {"a read of Out", "field 'y'"}); }

TEST_F(AccessTest, AnOutThatIsNotWhollyWrittenIsReportedByItsFirstByte) {
  expect_reported(16, {"node 'l0.scale'", "kernel scale", "Out field 'y' is not wholly written", "element 37, byte 148",
                       "1 of 64 elements", "PartialOut<T>"});
  expect_reported(17, {"Out field 'y' is not wholly written", "element 60, byte 240", "4 of 64 elements"});
  EXPECT_OK(run(16, false));
}

TEST_F(AccessTest, PartialOutMayBeWrittenInPartAndIsNeverRead) {
  start({.check_accesses = true});
  const CUfunction part = load("part", kPart, true);
  EXPECT_OK(launch(part, 1, 64, Part{{allocate<float>(64), 64}, {allocate<float>(8), 8}}, 0));
  EXPECT_OK(synchronize());
  EXPECT_OK(launch(part, 1, 64, Part{{allocate<float>(64), 64}, {allocate<float>(65), 65}}, 0));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  const std::string report = api().report();
  EXPECT_NE(std::string::npos, report.find("Out field 'all'")) << report;
  EXPECT_NE(std::string::npos, report.find("element 64, byte 256")) << report;
}

TEST_F(AccessTest, AFrozenLoadOfAnInputIsReported) { expect_reported(7, {"a frozen load", "16 bytes", "field 'x'"}); }

TEST_F(AccessTest, AnAtomicOnAnOutFieldIsReported) { expect_reported(8, {"a read of Out", "atomic", "field 'y'"}); }

TEST_F(AccessTest, SharedMemoryIsCheckedToItsExactSize) {
  expect_reported(9, {"beyond the shared memory", "thread (32,0,0)"});
  expect_reported(10, {"beyond the shared memory", "thread (0,0,0)"});
}

TEST_F(AccessTest, AThreadThatEndsWithoutHavingWaitedIsReported) {
  expect_reported(13, {"node 'l0.scale'", "kernel scale", "a thread ends without wait_for_inputs()", "block (0,0,0)",
                       "thread (5,0,0)"});
  expect_reported(14, {"node 'l0.scale'", "a thread ends without wait_for_inputs()", "thread (6,0,0)"});
  expect_reported(15, {"node 'l0.scale'", "a thread ends without wait_for_inputs()", "thread (0,0,0)"});
  EXPECT_OK(run(13, false));
}

TEST_F(AccessTest, AKernelThatReleasesBehindTheWaitHasWaited) {
  start({.check_accesses = true});
  const std::string text = "namespace nodewright { struct Idle { int64_t n; }; }\nNODEWRIGHT_KERNEL(idle, Idle, 64) {";
  const CUfunction releases = load("idle", text + "if (args.n > 0) wait_for_inputs(); release_behind_wait(); }", true);
  EXPECT_OK(launch(releases, 1, 64, int64_t{0}));
  EXPECT_OK(synchronize());
}

TEST_F(AccessTest, AKernelThatNeverWaitsMayEndWithoutHavingWaited) {
  start({.check_accesses = true});
  const CUfunction idle = load("idle",
                               "namespace nodewright { struct Idle { int64_t n; }; }\n"
                               "NODEWRIGHT_KERNEL(idle, Idle, 64) { release_dependents(); }",
                               true);
  EXPECT_OK(launch(idle, 1, 64, int64_t{0}));
  EXPECT_OK(synchronize());
}

TEST_F(AccessTest, AnUncheckedImageRunsUncheckedUntilAGuardPage) {
  EXPECT_OK(run(3, false));
  EXPECT_OK(run(1, false)) << "within the buffer, beyond the field";
}

}  // namespace
}  // namespace nodewright
