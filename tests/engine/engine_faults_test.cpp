// Driver calls that fail while an engine starts, serves, and ends: each request that was accepted has one end, nothing
// is launched on a lost device, nothing is left behind, and an engine made after it serves as if nothing had been.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

struct ServingFault {
  uint64_t call = UINT64_MAX;  // counted from the engine's first
  CUresult result = CUDA_ERROR_UNKNOWN;
  bool onward = false;
};

struct FaultyRun {
  std::string start_error;         // of an engine that could not be made
  std::string message;             // of its failed requests
  std::vector<std::string> calls;  // names, until the destructor
  uint64_t serving = 0;            // number of the first call after the start
  uint64_t failures = 0;
  std::map<RequestId, std::vector<int32_t>> outputs;
};

class EngineFaultsOnCpuDriver : public testing::Test {
 protected:
  static constexpr size_t kRequests = 4;

  // A prompt in chunks, one that needs another page while it decodes, and one that waits.
  EngineOptions options() const {
    return {.max_batch = 3, .buckets = {8}, .max_context = 2 * kPageTokens, .pages = 5, .reserve = Reserve::prompt};
  }

  FaultyRun serve(const ServingFault& fault = {}) {
    FaultyRun run;
    const uint64_t failures = interposer_.failures_injected();
    interposer_.trace_to([&](std::string_view line) {
      const size_t begin = line.find(' ') + 1;
      run.calls.emplace_back(line.substr(begin, line.find('(') - begin));
    });
    if (fault.call != UINT64_MAX) {
      if (fault.onward)
        interposer_.fail_from(fault.call, fault.result);
      else
        interposer_.fail_call(fault.call, fault.result);
    }
    try {
      Engine engine(loaded_.device, loaded_.kernels, loaded_.model, options());
      run.serving = run.calls.size();
      serve(engine, run);
      interposer_.trace_to({});
    } catch (const Error& error) {
      run.start_error = error.what();
    }
    interposer_.trace_to({});
    interposer_.fail_none();
    run.failures = interposer_.failures_injected() - failures;
    EXPECT_EQ(interposer_.describe_live(), before_);
    return run;
  }

  void serve(Engine& engine, FaultyRun& run) {
    for (uint64_t i = 0; i < kRequests; ++i)
      EXPECT_TRUE(
          engine.submit({.prompt = test::some_tokens(i == 1 ? 62 : 5 + 7 * i, loaded_.vocab(), i), .max_tokens = 6})
              .id);
    while (engine.advance()) engine.pipeline().check();
    const uint64_t launches = interposer_.calls(DriverEntry::cuGraphLaunch);
    EXPECT_FALSE(engine.advance());
    EXPECT_EQ(interposer_.calls(DriverEntry::cuGraphLaunch), launches);
    EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
    const bool failed = engine.pipeline().mode() == PipelineMode::failed;
    std::map<RequestId, int> ends;
    for (const Resolution& end : engine.take_resolutions()) {
      EXPECT_EQ(++ends[end.request], 1) << "request " << end.request << " ended again";
      EXPECT_TRUE(end.reason == EndReason::length || failed) << end.message;
      if (end.reason == EndReason::length) {
        run.outputs[end.request] = end.outputs;
        continue;
      }
      EXPECT_EQ(end.reason, EndReason::failed);
      EXPECT_TRUE(run.message.empty() || run.message == end.message) << "another message: " << end.message;
      run.message = end.message;
    }
    EXPECT_EQ(ends.size(), kRequests);
    EXPECT_EQ(failed, !run.message.empty());
  }

  // What holds whatever failed.
  void expect_one_report(const FaultyRun& run, bool is_release) {
    for (const auto& [id, outputs] : run.outputs) EXPECT_EQ(outputs, expected_.outputs.at(id)) << "request " << id;
    if (run.failures == 0 || is_release) {
      EXPECT_EQ(run.start_error + run.message, "");
      EXPECT_EQ(run.outputs.size(), kRequests);
      return;
    }
    EXPECT_NE(run.start_error.empty(), run.message.empty());
    expect_words(run.start_error + run.message, {"cannot ", "driver: cu", "CUDA_ERROR_"});
  }

  static bool releases(const std::string& call) {
    return call.find("Destroy") != std::string::npos || call.find("MemFree") != std::string::npos ||
           call.find("Unload") != std::string::npos;
  }

  test::LoadedModel loaded_{"llama/odd_sizes", "cpu", Observe::yes};
  Interposer& interposer_ = *loaded_.opened.interposer;
  std::string before_ = [this] {
    (void)Engine(loaded_.device, loaded_.kernels, loaded_.model, options());  // loads the kernels
    return interposer_.describe_live();
  }();
  FaultyRun expected_ = serve();
};

TEST_F(EngineFaultsOnCpuDriver, OneFailingCallOfStartAndServingIsOneReportAndTheNextEngineServes) {
  ASSERT_EQ(expected_.outputs.size(), kRequests);
  ASSERT_GT(expected_.serving, 50u);
  int in_start = 0, in_serving = 0;
  // A sample: 13 and 17 below divide no length of what repeats.
  for (uint64_t call = 0; call < expected_.calls.size(); call += 13) {
    SCOPED_TRACE("call " + std::to_string(call) + " " + expected_.calls[call]);
    const FaultyRun run = serve({.call = call, .result = call % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(run.failures, 1u);
    expect_one_report(run, releases(expected_.calls[call]));
    in_start += !run.start_error.empty();
    in_serving += !run.message.empty();
    if (HasFailure()) return;
  }
  EXPECT_GE(in_start, 4);
  EXPECT_GT(in_serving, 5);
  EXPECT_EQ(serve().outputs, expected_.outputs);
}

TEST_F(EngineFaultsOnCpuDriver, AStickyErrorFromAnyCallOnIsOneReportAndNothingIsLaunchedAfterIt) {
  for (uint64_t call = 1; call < expected_.calls.size(); call += 17) {
    SCOPED_TRACE("from call " + std::to_string(call) + " " + expected_.calls[call]);
    const FaultyRun run = serve({.call = call, .result = CUDA_ERROR_ILLEGAL_ADDRESS, .onward = true});
    expect_one_report(run, false);
    expect_words(run.start_error + run.message, {"CUDA_ERROR_ILLEGAL_ADDRESS (700)"});
    if (HasFailure()) return;
    int after = 0;  // what is launched after the call that told
    for (size_t i = call + 1; i < run.calls.size(); ++i) after += run.calls[i] == "cuGraphLaunch";
    EXPECT_EQ(after, 0);
  }
  EXPECT_EQ(serve().outputs, expected_.outputs);
}

TEST_F(EngineFaultsOnCpuDriver, EveryAllocationThatFailsSaysWhatWasNeededAndFree) {
  int allocations = 0;
  for (uint64_t call = 0; call < expected_.serving; ++call) {
    const std::string& name = expected_.calls[call];
    if (name != "cuMemAlloc" && name != "cuMemHostAlloc") continue;
    SCOPED_TRACE("call " + std::to_string(call) + " " + name);
    const FaultyRun run = serve({.call = call, .result = CUDA_ERROR_OUT_OF_MEMORY});
    expect_words(run.start_error, {"needs", name, "CUDA_ERROR_OUT_OF_MEMORY"});
    if (name == "cuMemAlloc") expect_words(run.start_error, {"free"});
    ++allocations;
  }
  EXPECT_GE(allocations, 7);  // a cache of one page, the cache, last tokens, and of each slot inputs and activations
}

TEST_F(EngineFaultsOnCpuDriver, DestroysThatFailAreNoReportAndLeaveNothing) {
  const uint64_t failures = interposer_.failures_injected();
  {
    FaultyRun run;
    Engine engine(loaded_.device, loaded_.kernels, loaded_.model, options());
    serve(engine, run);
    EXPECT_EQ(run.outputs, expected_.outputs);
    interposer_.fail_from(0, CUDA_ERROR_UNKNOWN);
  }
  interposer_.fail_none();
  EXPECT_GT(interposer_.failures_injected() - failures, 15u);
  EXPECT_EQ(interposer_.describe_live(), before_);
}

TEST_F(EngineFaultsOnCpuDriver, SeededRandomFaultsAreOneReportEach) {
  const CUresult results[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_FAILED,
                              CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_ECC_UNCORRECTABLE};
  for (uint32_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const uint64_t call = random() % expected_.calls.size();
    const CUresult result = results[random() % std::size(results)];
    const bool onward = random() % 2 == 0;
    expect_one_report(serve({.call = call, .result = result, .onward = onward}),
                      !onward && releases(expected_.calls[call]));
    if (HasFailure()) return;
  }
}

// The driver says for ever that the step is not ready.
TEST_F(EngineFaultsOnCpuDriver, AStepThatDoesNotEndFailsEveryRequestAfterTheTimeout) {
  {
    EngineOptions limited = options();
    limited.step_timeout_ms = 60000;
    FaultyRun run;
    Engine patient(loaded_.device, loaded_.kernels, loaded_.model, limited);
    serve(patient, run);
    EXPECT_EQ(run.outputs, expected_.outputs);
    EXPECT_FALSE(patient.slots().timed_out());

    limited.step_timeout_ms = 40;
    Engine engine(loaded_.device, loaded_.kernels, loaded_.model, limited);
    ASSERT_TRUE(engine.submit({.prompt = {1, 2}, .max_tokens = 5}).id);
    ASSERT_TRUE(engine.submit({.prompt = {3}, .max_tokens = 5}).id);
    while (engine.pipeline().sampled().size() < 2) ASSERT_TRUE(engine.advance());
    interposer_.fail_from(0, CUDA_ERROR_NOT_READY);
    const auto start = std::chrono::steady_clock::now();
    while (engine.advance()) continue;
    const std::chrono::duration<double, std::milli> waited = std::chrono::steady_clock::now() - start;
    interposer_.fail_none();
    EXPECT_GE(waited.count(), 40);
    EXPECT_LT(waited.count(), 5000);
    EXPECT_TRUE(engine.slots().timed_out());
    const std::vector<Resolution> ends = engine.take_resolutions();
    ASSERT_EQ(ends.size(), 2u);
    for (const Resolution& end : ends) expect_words(end.message, {"bucket '8'", "40 ms", "step timeout"});
    expect_words(engine.submit({.prompt = {1}}).reason, {"the engine has failed"});
  }
  EXPECT_EQ(interposer_.describe_live(), before_);
}

}  // namespace
}  // namespace nodewright
