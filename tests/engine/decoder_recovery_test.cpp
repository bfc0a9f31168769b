// A decoder after a driver call of it has failed: it goes on to the tokens of an undisturbed one, or says why not.
#include "graph/graph_exec.h"
#include "kernels_src/attention/rope_flash_decode.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int kSteps = 5, kFailingStep = 2;

const Sampling kSampled{.temperature = 1.0f, .seed = 4};

// What two sequences, one greedy and one sampled, gave step by step.
struct Course {
  std::vector<Tokens> tokens;
  std::vector<Logits> logits;
};

class DecoderRecovery : public testing::TestWithParam<RunMode> {
 protected:
  LoadedModel loaded{"llama/odd_sizes", test_device(), Observe::yes};
  Interposer& interposer = *loaded.opened.interposer;
  Decoder decoder = loaded.decoder(decoder_options(2, GetParam()));
  Tokens prompt = some_tokens(11, loaded.vocab(), 1);  // a full chunk and a part of one

  std::vector<StepRow> open_two() {
    std::vector<StepRow> rows;
    for (const Sampling& sampling : {Sampling{}, kSampled})
      rows.push_back({.sequence = decoder.open(), .token = 5, .sampling = sampling});
    return rows;
  }

  // The `call`-th driver call of the failing step fails; `call_reached` is false where it has fewer.
  Course course(std::optional<uint64_t> call, bool& call_reached) {
    Course course;
    call_reached = false;
    std::vector<StepRow> rows = open_two();
    for (const StepRow& row : rows) decoder.append(row.sequence, prompt);
    for (int step = 0; step < kSteps; ++step) {
      if (step == kFailingStep && call) {
        const std::vector<int64_t> lengths{decoder.length(rows[0].sequence), decoder.length(rows[1].sequence)};
        interposer.fail_call(*call, CUDA_ERROR_UNKNOWN);
        try {
          decoder.step(rows);
        } catch (const Error& error) {
          call_reached = true;
          EXPECT_NE(std::string_view(error.what()).find("CUDA_ERROR_UNKNOWN"), std::string_view::npos) << error.what();
        }
        interposer.fail_none();
        if (!call_reached) break;
        for (size_t row = 0; row < rows.size(); ++row) EXPECT_EQ(decoder.length(rows[row].sequence), lengths[row]);
        // Nobody knows which token the device holds now: it must be named.
        EXPECT_THROW(decoder.step(rows), Error);
        for (size_t row = 0; row < rows.size(); ++row) rows[row].token = course.tokens.back()[row];
      }
      const std::span<const int32_t> chosen = decoder.step(rows);
      course.tokens.emplace_back(chosen.begin(), chosen.end());
      for (size_t row = 0; row < rows.size(); ++row) {
        course.logits.push_back(logits_of(decoder, loaded, static_cast<int64_t>(row)));
        rows[row].token.reset();
      }
    }
    for (const StepRow& row : rows) decoder.close(row.sequence);
    EXPECT_EQ(decoder.pages().taken(), 0);
    return course;
  }
};

TEST_P(DecoderRecovery, AStepWithOneFailedCallIsRepeatedWithEqualBits) {
  bool reached = false;
  const Course expected = course(std::nullopt, reached);
  uint64_t calls = 0;
  for (;; ++calls) {
    const Course again = course(calls, reached);
    if (!reached) break;
    EXPECT_EQ(again.tokens, expected.tokens) << "call " << calls;
    EXPECT_TRUE(same_bits(again.logits, expected.logits)) << "call " << calls;
  }
  EXPECT_EQ(calls, GetParam() == RunMode::eager ? decoder.step_plan().nodes.size() + 1 : 2u);
}

TEST_P(DecoderRecovery, APromptWithOneFailedCallGoesOnFromItsLength) {
  const auto logits_after = [&](int32_t sequence) {
    decoder.step({{.sequence = sequence, .token = 5}});
    return logits_of(decoder, loaded);
  };
  const int32_t undisturbed = decoder.open();
  decoder.append(undisturbed, prompt);
  const Logits expected = logits_after(undisturbed);
  decoder.close(undisturbed);
  for (uint64_t call = 0;; ++call) {
    const int32_t sequence = decoder.open();
    interposer.fail_call(call, CUDA_ERROR_UNKNOWN);
    bool failed = false;
    try {
      decoder.append(sequence, prompt);
    } catch (const Error&) {
      failed = true;
    }
    interposer.fail_none();
    decoder.append(sequence, std::span(prompt).subspan(static_cast<size_t>(decoder.length(sequence))));
    EXPECT_EQ(decoder.length(sequence), static_cast<int64_t>(prompt.size()));
    EXPECT_TRUE(same_bits(logits_after(sequence), expected)) << "call " << call;
    decoder.close(sequence);
    if (!failed) break;
    ASSERT_LT(call, 100u);
  }
}

TEST_P(DecoderRecovery, AStickyErrorIsReportedInItsWordsByTheStepThatMeetsIt) {
  const std::vector<StepRow> rows = open_two();
  decoder.step(rows);
  interposer.fail_from(GetParam() == RunMode::eager ? decoder.step_plan().nodes.size() : 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      decoder.step(rows);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_NE(line.find("cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos) << line;
      EXPECT_NE(line.find("'decode'"), std::string::npos) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
  EXPECT_EQ(decoder.length(rows[0].sequence), 1);
  interposer.fail_none();
}

// What the failed step left to run must not read the input block of the next one.
TEST_P(DecoderRecovery, AFailedStepDoesNotDisturbAnotherSequence) {
  std::vector<Tokens> courses;
  for (bool fails : {false, true}) {
    const std::vector<StepRow> rows = open_two();
    const StepRow broken = rows[0];
    StepRow other = rows[1];
    Tokens tokens;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kFailingStep && fails) {
        interposer.fail_call(GetParam() == RunMode::eager ? decoder.step_plan().nodes.size() : 1, CUDA_ERROR_UNKNOWN);
        EXPECT_THROW(decoder.step({broken}), Error);
        interposer.fail_none();
      }
      tokens.push_back(decoder.step({other})[0]);
      other.token.reset();
    }
    courses.push_back(tokens);
    for (const StepRow& row : rows) decoder.close(row.sequence);
  }
  EXPECT_EQ(courses[1], courses[0]);
}

INSTANTIATE_TEST_SUITE_P(Runs, DecoderRecovery, testing::Values(RunMode::explicit_, RunMode::captured, RunMode::eager),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// A real one: a kernel that reads outside every allocation. On a GPU it would cost the process its context.
TEST(DecoderFaultOnCpuDriver, AKernelThatReadsOutsideMemoryEndsInOneErrorThatNamesItsNode) {
  {
    LoadedModel loaded("llama/odd_sizes", "cpu", Observe::yes);
    std::optional<Decoder> decoder(std::in_place, loaded.device, loaded.stream, loaded.kernels, loaded.model,
                                   decoder_options(2));
    const int32_t a = decoder->open(), b = decoder->open();
    uint32_t attend = 0;
    while (decoder->step_plan().nodes.at(attend).name != "l1.attend") ++attend;
    // The graph is patched by its plan's user, so through the const view that the decoder gives of it.
    auto& graph = const_cast<ExplicitGraph&>(*decoder->step_graph());
    graph.patch(Node<RopeFlashDecode>{{attend, graph.plan().id}}, &RopeFlashDecode::table_stride, int64_t{1} << 40);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        decoder->step({{.sequence = a, .token = 1}, {.sequence = b, .token = 2}});
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        const std::string line = error.what();
        EXPECT_NE(line.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos) << line;
        EXPECT_NE(line.find("l1.attend"), std::string::npos) << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      }
    }
    EXPECT_EQ(decoder->length(a), 0);
    decoder.reset();
  }
  // The next device starts afresh.
  LoadedModel loaded("llama/odd_sizes", "cpu");
  Decoder decoder = loaded.decoder(decoder_options(2));
  decoder.step({{.sequence = decoder.open(), .token = 1}});
}

}  // namespace
}  // namespace nodewright
