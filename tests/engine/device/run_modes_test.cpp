// The three runs of one plan give equal bits and are, as the driver sees them, three different things.
#include <map>

#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

class RunModes : public testing::TestWithParam<std::string> {};

TEST_P(RunModes, ExplicitCapturedAndEagerGiveEqualBits) {
  LoadedModel loaded(GetParam());
  for (int64_t bucket : {1, 8}) {
    Decoder explicit_run = loaded.decoder(decoder_options(bucket, RunMode::explicit_));
    Decoder captured_run = loaded.decoder(decoder_options(bucket, RunMode::captured));
    Decoder eager_run = loaded.decoder(decoder_options(bucket, RunMode::eager));
    for (const GoldenCase& one : golden_cases_of(GetParam())) {
      const std::vector<Logits> rows = forced_logits(explicit_run, loaded, one.prompt, one.continuation);
      EXPECT_TRUE(same_bits(rows, forced_logits(captured_run, loaded, one.prompt, one.continuation)))
          << "captured, bucket " << bucket << ", prompt of " << one.prompt.size();
      EXPECT_TRUE(same_bits(rows, forced_logits(eager_run, loaded, one.prompt, one.continuation)))
          << "eager, bucket " << bucket << ", prompt of " << one.prompt.size();
    }
  }
}

TEST_P(RunModes, GiveEqualBitsOfProducts) {
  LoadedModel loaded(GetParam());
  const GoldenCase one = golden_cases_of(GetParam()).at(2);
  std::vector<Logits> first;
  for (RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
    DecoderOptions options = decoder_options(kHeldToRows + 1, mode);
    options.prefill_rows = options.sequences = options.bucket;
    Decoder decoder = loaded.decoder(options);
    const std::vector<Logits> rows = forced_logits(decoder, loaded, one.prompt, one.continuation);
    if (first.empty()) first = rows;
    EXPECT_TRUE(same_bits(rows, first)) << to_string(mode);
  }
}

TEST_P(RunModes, EveryEdgePolicyGivesEqualBits) {
  LoadedModel loaded(GetParam());
  const GoldenCase one = golden_cases_of(GetParam()).at(1);
  std::vector<Logits> first;
  for (EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
    DecoderOptions options = decoder_options(1);
    options.policy = policy;
    Decoder decoder = loaded.decoder(options);
    const std::vector<Logits> rows = forced_logits(decoder, loaded, one.prompt, one.continuation);
    if (first.empty()) first = rows;
    EXPECT_TRUE(same_bits(rows, first)) << "policy " << static_cast<int>(policy);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, RunModes, testing::ValuesIn(kGoldenModels), golden_test_name);

// The names of the driver calls in a trace, in order.
class CallNames {
 public:
  explicit CallNames(Interposer& interposer) : interposer_(interposer) {
    interposer_.trace_to([this](std::string_view line) {
      const size_t begin = line.find(' ') + 1;
      names_.emplace_back(line.substr(begin, line.find('(') - begin));
    });
  }
  ~CallNames() { interposer_.trace_to({}); }
  CallNames(const CallNames&) = delete;
  CallNames& operator=(const CallNames&) = delete;

  // Those since the last take.
  std::vector<std::string> take() { return std::exchange(names_, {}); }

 private:
  Interposer& interposer_;
  std::vector<std::string> names_;
};

int64_t count(const std::vector<std::string>& names, std::string_view name) {
  return std::count(names.begin(), names.end(), name);
}

int64_t captures(const std::vector<std::string>& names) {
  return count(names, "cuStreamBeginCapture") + count(names, "cuStreamBeginCaptureToGraph");
}

// What the driver saw of one decoder: while it was built, in a prompt of one prefill chunk, in one step.
struct Trace {
  std::vector<std::string> build, append, step;
  int64_t nodes = 0, kernels = 0, kernels_of_prefill = 0;
};

Trace trace_of(RunMode mode) {
  LoadedModel loaded("llama/odd_sizes", test_device(), Observe::yes);
  // The kernels are loaded before, so that the trace holds the graphs and the memory only.
  loaded.decoder(decoder_options(1, mode));
  CallNames names(*loaded.opened.interposer);
  Decoder decoder = loaded.decoder(decoder_options(1, mode));
  Trace trace;
  trace.build = names.take();
  const int32_t sequence = decoder.open();
  decoder.append(sequence, Tokens{3, 1, 4});
  trace.append = names.take();
  decoder.step({{.sequence = sequence, .token = 5}});
  trace.step = names.take();
  for (const PlanNode& node : decoder.plan().nodes) {
    ++trace.nodes;
    if (node.kind == NodeKind::kernel) ++trace.kernels;
  }
  trace.kernels_of_prefill = trace.kernels - 2;  // no logits, no sample
  return trace;
}

const std::vector<std::string> kOneLaunch = {"cuGraphLaunch", "cuStreamSynchronize"};

TEST(RunModeTrace, ExplicitAddsEveryNodeAndCapturesNothing) {
  const Trace trace = trace_of(RunMode::explicit_);
  EXPECT_EQ(count(trace.build, "cuGraphAddNode"), trace.nodes + trace.kernels_of_prefill);
  EXPECT_EQ(count(trace.build, "cuGraphInstantiateWithParams"), 2);
  EXPECT_EQ(captures(trace.build), 0);
  EXPECT_EQ(count(trace.build, "cuLaunchKernelEx"), 0);
  EXPECT_EQ(trace.append, kOneLaunch);
  EXPECT_EQ(trace.step, kOneLaunch);
}

TEST(RunModeTrace, CapturedRecordsLaunchesAndAddsNoNode) {
  const Trace trace = trace_of(RunMode::captured);
  EXPECT_EQ(captures(trace.build), 2);
  EXPECT_EQ(count(trace.build, "cuStreamEndCapture"), 2);
  EXPECT_EQ(count(trace.build, "cuLaunchKernelEx"), trace.kernels + trace.kernels_of_prefill);
  EXPECT_EQ(count(trace.build, "cuGraphInstantiateWithParams"), 2);
  EXPECT_EQ(count(trace.build, "cuGraphAddNode"), 0);
  EXPECT_EQ(trace.append, kOneLaunch);
  EXPECT_EQ(trace.step, kOneLaunch);
}

TEST(RunModeTrace, EagerLaunchesEveryKernelAndMakesNoGraph) {
  const Trace trace = trace_of(RunMode::eager);
  EXPECT_EQ(captures(trace.build), 0);
  for (const auto* names : {&trace.build, &trace.append, &trace.step})
    for (const std::string& name : *names) EXPECT_FALSE(name.starts_with("cuGraph")) << name;
  EXPECT_EQ(count(trace.append, "cuLaunchKernelEx"), trace.kernels_of_prefill);
  EXPECT_EQ(count(trace.step, "cuLaunchKernelEx"), trace.kernels);
  EXPECT_EQ(count(trace.step, "cuMemcpyHtoDAsync"), 0) << "a kernel reads the step's inputs from the host";
  EXPECT_EQ(count(trace.step, "cuMemcpyDtoHAsync"), 0) << "the kernel that chooses writes to the host";
  EXPECT_EQ(captures(trace.step), 0);
}

TEST(RunModeTrace, AStepSynchronisesOnceInEveryMode) {
  for (RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
    const Trace trace = trace_of(mode);
    EXPECT_EQ(count(trace.step, "cuStreamSynchronize"), 1) << to_string(mode);
    EXPECT_EQ(count(trace.step, "cuCtxSynchronize"), 0) << to_string(mode);
    EXPECT_EQ(count(trace.step, "cuMemAlloc"), 0) << to_string(mode);
  }
}

// The same bits whatever order the CPU driver takes the work in, and on a device without programmatic launches. The
// checked form reports an access that a kernel's arguments did not declare.
class DecodeFormsOnCpuDriver : public testing::TestWithParam<std::string> {};

std::vector<Logits> short_decode(const std::string& spec) {
  LoadedModel loaded("llama/odd_sizes", spec);
  std::vector<Logits> rows;
  for (int64_t bucket : {1, 2}) {
    Decoder decoder = loaded.decoder(decoder_options(bucket));
    const int32_t one = decoder.open(), two = decoder.open();
    decoder.append(one, some_tokens(11, loaded.vocab(), 1));  // a full chunk and a part of one
    decoder.append(two, some_tokens(3, loaded.vocab(), 2));
    for (int step = 0; step < 3; ++step) {
      std::vector<StepRow> live{{.sequence = one, .token = {}}};
      if (bucket == 2) live.push_back({.sequence = two, .sampling = {.temperature = 0.8f, .top_k = 40, .seed = 5}});
      if (step == 0)
        for (StepRow& row : live) row.token = 7;
      const std::span<const int32_t> chosen = decoder.step(live);
      for (size_t row = 0; row < live.size(); ++row) {
        rows.push_back(logits_of(decoder, loaded, static_cast<int64_t>(row)));
        rows.push_back({static_cast<float>(chosen[row])});
      }
    }
  }
  return rows;
}

TEST_P(DecodeFormsOnCpuDriver, DecodesToTheSameBitsAndReportsNothing) {
  const std::vector<Logits> expected = short_decode("cpu");
  EXPECT_TRUE(same_bits(short_decode(GetParam()), expected));
}

INSTANTIATE_TEST_SUITE_P(Forms, DecodeFormsOnCpuDriver,
                         testing::Values("cpu:checked", "cpu:reverse", "cpu:seed=7", "cpu:sm80", "cpu:checked,reverse",
                                         "cpu:immediate", "cpu:workers=1"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace nodewright
