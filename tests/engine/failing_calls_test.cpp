// Every driver call of opening a device, loading a model, building a decoder and decoding fails once in turn: one error
// that names the call and an object, and nothing left behind.
#include <algorithm>
#include <optional>
#include <set>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/context_guard.h"
#include "runtime/event.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int kSweptSteps = 8;

// Calls that destructors make: nobody is left to tell that they failed.
bool releases(std::string_view call) {
  static const std::set<std::string_view> kReleasing = {
      "cuMemFree",       "cuMemFreeHost",  "cuMemHostUnregister", "cuStreamDestroy",          "cuEventDestroy",
      "cuLibraryUnload", "cuGraphDestroy", "cuGraphExecDestroy",  "cuDevicePrimaryCtxRelease"};
  return kReleasing.contains(call);
}

// A context that is put back by a destructor, which has nobody to tell; one that is set has.
bool may_be_silent(std::string_view call) { return call == "cuCtxSetCurrent"; }

// What to do wrong in a run.
struct Fault {
  std::optional<uint64_t> call;  // the one that fails, counted from the first
  CUresult result = CUDA_ERROR_UNKNOWN;
  bool onward = false;  // and every later one
  bool leaks = false;   // creates an event and forgets it
};

struct Outcome {
  std::string error;               // what() of the one that ended the run, or empty
  Tokens tokens;                   // chosen before it ended
  std::vector<std::string> calls;  // names, in order
  uint64_t closing = 0;            // number of the first call after the last step
  uint64_t failures = 0;
  std::string live;         // what was left; empty when nothing was
  std::string failed_call;  // the name of the call that was made to fail
};

void decode(Driver& driver, int64_t bucket, RunMode mode, Interposer& interposer, bool leaks, Outcome& outcome) {
  Device device(driver, 0);
  const ContextGuard current(device);
  Stream stream(device, "decode");
  KernelCache kernels(device);
  const DecoderModel model = DecoderModel::load(device, stream, golden_folder("llama/odd_sizes"));
  DecoderOptions options = decoder_options(bucket, mode);
  options.max_context = 64;
  options.sequences = bucket;
  Decoder decoder(device, kernels, model, options);
  std::vector<StepRow> rows;
  for (int64_t i = 0; i < bucket; ++i) {
    rows.push_back({.sequence = decoder.open(), .token = 5});
    if (i == 1) rows.back().sampling = {.temperature = 1.0f, .seed = 3};
    decoder.append(rows.back().sequence, some_tokens(9, 1003, static_cast<uint64_t>(i)));
  }
  for (int step = 0; step < kSweptSteps; ++step) {
    for (int32_t token : decoder.step(rows)) outcome.tokens.push_back(token);
    for (StepRow& row : rows) row.token.reset();
  }
  if (leaks) {
    CUevent forgotten = nullptr;
    driver.check(driver.cuEventCreate(&forgotten, CU_EVENT_DEFAULT), "cuEventCreate", "create event", "forgotten");
  }
  outcome.closing = interposer.calls();
}

Outcome run(int64_t bucket, RunMode mode, const Fault& fault = {}) {
  Outcome outcome;
  // By hand, so that the interposer is there before the device's first call.
  const std::unique_ptr<Driver> driver = Driver::load_cpu({});
  driver->cuInit(0);
  driver->cuCtxSetCurrent(nullptr);  // one that could not be put back
  Interposer interposer(*driver);
  interposer.trace_to([&](std::string_view line) {
    const size_t begin = line.find(' ') + 1;
    outcome.calls.emplace_back(line.substr(begin, line.find('(') - begin));
  });
  if (fault.call && fault.onward) interposer.fail_from(*fault.call, fault.result);
  if (fault.call && !fault.onward) interposer.fail_call(*fault.call, fault.result);
  try {
    decode(*driver, bucket, mode, interposer, fault.leaks, outcome);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  outcome.failures = interposer.failures_injected();
  if (!interposer.live().empty()) outcome.live = interposer.describe_live();
  if (fault.call && *fault.call < outcome.calls.size()) outcome.failed_call = outcome.calls[*fault.call];
  return outcome;
}

// One line, with the call and an object in quotes. Empty when it is so.
std::string error_fault(const Outcome& outcome) {
  if (outcome.error.empty()) return "no error";
  if (outcome.error.find('\n') != std::string::npos) return "more than one line";
  if (outcome.error.find(outcome.failed_call + ":") == std::string::npos) return "does not name the call";
  const size_t quote = outcome.error.find('\'');
  if (quote == std::string::npos || outcome.error.find('\'', quote + 1) <= quote + 1) return "names no object";
  if (outcome.failed_call == "cuMemAlloc" &&
      (outcome.error.find("needs ") == std::string::npos || outcome.error.find("free") == std::string::npos))
    return "does not say how much memory was needed and free";
  return {};
}

struct SweptRun {
  int64_t bucket;
  RunMode mode;
};

class FailingCallsOnCpuDriver : public testing::TestWithParam<SweptRun> {};

TEST_P(FailingCallsOnCpuDriver, EveryCallThatFailsOnceEndsInOneErrorAndLeavesNothing) {
  const auto [bucket, mode] = GetParam();
  run(bucket, mode);  // kernels are on disk from here on
  const Outcome whole = run(bucket, mode);
  ASSERT_EQ(whole.error, "");
  ASSERT_EQ(whole.live, "");
  ASSERT_EQ(whole.tokens.size(), static_cast<size_t>(kSweptSteps * bucket));
  ASSERT_GT(whole.calls.size(), 100u);
  RecordProperty("calls", static_cast<int>(whole.calls.size()));
  for (uint64_t call = 0; call < whole.calls.size(); ++call) {
    const CUresult result = call % 2 == 0 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY;
    const Outcome outcome = run(bucket, mode, {.call = call, .result = result});
    SCOPED_TRACE("call " + std::to_string(call) + " " + outcome.failed_call + ": " + outcome.error);
    ASSERT_EQ(outcome.failures, 1u);
    ASSERT_EQ(outcome.failed_call, whole.calls[call]) << "runs do not repeat";
    EXPECT_EQ(outcome.live, "");
    if (releases(outcome.failed_call) || call >= whole.closing ||
        (may_be_silent(outcome.failed_call) && outcome.error.empty())) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.tokens, whole.tokens);
    } else {
      EXPECT_EQ(error_fault(outcome), "");
      EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), whole.tokens.begin()));
    }
    if (HasFailure()) break;  // one is enough to read
  }
  const Outcome again = run(bucket, mode);
  EXPECT_EQ(again.tokens, whole.tokens) << "after the sweep: " << again.error;
}

// As after a fault of the device, from which no call recovers.
TEST_P(FailingCallsOnCpuDriver, EveryCallFromSomeCallOnFailingEndsInOneErrorAndLeavesNothing) {
  const auto [bucket, mode] = GetParam();
  const Outcome whole = run(bucket, mode);
  for (uint64_t call = 0; call < whole.closing; ++call) {
    const Outcome outcome = run(bucket, mode, {.call = call, .result = CUDA_ERROR_ILLEGAL_ADDRESS, .onward = true});
    SCOPED_TRACE("from call " + std::to_string(call) + " " + outcome.failed_call + ": " + outcome.error);
    EXPECT_EQ(outcome.live, "");
    if (!releases(outcome.failed_call) && !may_be_silent(outcome.failed_call)) {
      EXPECT_EQ(error_fault(outcome), "");
    }
    EXPECT_NE(outcome.error.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos);
    if (HasFailure()) break;
  }
}

TEST_P(FailingCallsOnCpuDriver, APlantedLeakIsFound) {
  const auto [bucket, mode] = GetParam();
  const Outcome outcome = run(bucket, mode, {.leaks = true});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.live.find("1 live: event 0x"), 0u) << outcome.live;
  EXPECT_NE(outcome.live.find("cuEventCreate"), std::string::npos) << outcome.live;
}

std::string name_of_run(const testing::TestParamInfo<SweptRun>& info) {
  return std::string(to_string(info.param.mode)) + "_bucket_" + std::to_string(info.param.bucket);
}

INSTANTIATE_TEST_SUITE_P(Runs, FailingCallsOnCpuDriver, testing::Values(SweptRun{1, RunMode::explicit_}), name_of_run);
INSTANTIATE_TEST_SUITE_P(RunsSweep, FailingCallsOnCpuDriver,
                         testing::Values(SweptRun{2, RunMode::explicit_}, SweptRun{1, RunMode::captured},
                                         SweptRun{1, RunMode::eager}),
                         name_of_run);

// The check of the sweep itself must see an error that is silent about the call or the object.
TEST(FailingCallsCheck, RefusesAnErrorThatNamesNoCallOrNoObject) {
  Outcome outcome{.error = "cannot launch node 'embed'; driver: cuGraphLaunch: CUDA_ERROR_UNKNOWN"};
  outcome.failed_call = "cuGraphLaunch";
  EXPECT_EQ(error_fault(outcome), "");
  outcome.failed_call = "cuMemcpyHtoD";
  EXPECT_EQ(error_fault(outcome), "does not name the call");
  outcome.failed_call = "cuGraphLaunch";
  outcome.error = "cannot launch; driver: cuGraphLaunch: CUDA_ERROR_UNKNOWN";
  EXPECT_EQ(error_fault(outcome), "names no object");
  outcome.error = "";
  EXPECT_EQ(error_fault(outcome), "no error");
}

}  // namespace
}  // namespace nodewright
