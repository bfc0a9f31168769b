// What steps that their caller makes refuse, and how they fail.
#include "engine/direct_steps.h"

#include <cstdio>
#include <functional>

#include "graph/graph_exec.h"
#include "kernels_src/attention/rope_flash_decode.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

class DirectStepsErrors : public testing::Test {
 protected:
  LoadedModel loaded{"llama/odd_sizes"};
  DecoderOptions options{.bucket = 2, .max_context = 80, .sequences = 3};
};

TEST_F(DirectStepsErrors, ATokenOutsideTheVocabularyIsNamed) {
  Decoder decoder = loaded.decoder(options);
  const int32_t sequence = decoder.open();
  for (const int32_t token : {1003, -1, INT32_MAX, INT32_MIN}) {
    const std::string word = "'" + std::to_string(token) + "'";
    expect_error([&] { decoder.append(sequence, Tokens{1, token, 2}); }, {word, "1003 tokens"});
    expect_error([&] { decoder.step({{.sequence = sequence, .token = token}}); }, {word, "1003 tokens"});
  }
  EXPECT_EQ(decoder.length(sequence), 0);
  decoder.append(sequence, Tokens{1002, 0});
  EXPECT_EQ(decoder.length(sequence), 2);
}

TEST_F(DirectStepsErrors, TokensPastTheContextAreRefusedAndAppendNothing) {
  Decoder decoder = loaded.decoder(options);
  const int32_t sequence = decoder.open();
  expect_error([&] { decoder.append(sequence, some_tokens(81, loaded.vocab(), 1)); }, {"81 tokens", "context of 80"});
  EXPECT_EQ(decoder.length(sequence), 0);
  decoder.append(sequence, some_tokens(80, loaded.vocab(), 1));
  expect_error(
      [&] {
        decoder.step({{.sequence = decoder.open(), .token = 1}, {.sequence = sequence, .token = 1}});
      },
      {"81 tokens", "context of 80"});
  EXPECT_EQ(decoder.length(0), 80);
  EXPECT_EQ(decoder.length(1), 0);
}

TEST_F(DirectStepsErrors, MoreRowsThanTheBucketOrNoneAreRefused) {
  Decoder decoder = loaded.decoder(options);
  expect_error(
      [&] {
        decoder.step({{.sequence = 0, .token = 1}, {.sequence = 1, .token = 1}, {.sequence = 2, .token = 1}});
      },
      {"rows of a step", "3 is outside 1 to 2"});
  expect_error([&] { decoder.launch({}); }, {"rows of a step", "0 is outside 1 to 2"});
}

TEST_F(DirectStepsErrors, OptionsOutOfRangeAreNamed) {
  const auto refused = [&](auto change, const std::string& option, const std::string& range) {
    DecoderOptions wrong = options;
    change(wrong);
    expect_error([&] { loaded.decoder(wrong); }, {"'" + option + "'", range});
  };
  refused([](DecoderOptions& o) { o.bucket = 0; }, "bucket", "0 is outside 1 to");
  refused([](DecoderOptions& o) { o.bucket = 1 << 20; }, "bucket", "1048576");
  refused([](DecoderOptions& o) { o.prefill_rows = 0; }, "prefill rows", "0 is outside 1 to");
  refused([](DecoderOptions& o) { o.max_context = 0; }, "max context", "0 is outside 1 to");
  refused([](DecoderOptions& o) { o.max_context = 513; }, "max context", "1 to 512");
  refused([](DecoderOptions& o) { o.adapters = adapter_limits(1, 8), o.steps.most = 2; }, "steps per launch", "take 1");
}

TEST(DirectSteps, GiveTheLogitsOfSeveralTokensOfASequenceInAStep) {
  LoadedModel loaded("llama/odd_sizes");
  const Tokens tokens = some_tokens(11, loaded.vocab(), 5);
  Decoder decoder = loaded.decoder({.max_context = 80, .numerics = Numerics::invariant, .keep_logits = true});
  const std::vector<Logits> expected = forced_logits(decoder, loaded, {tokens[0]}, {tokens.begin() + 1, tokens.end()});
  DirectSteps steps({&loaded.device, &loaded.kernels, &loaded.model},
                    {.bucket = 4,
                     .keep_logits = true,
                     .slots = {.max_context = 80, .most_sampled = 4, .numerics = Numerics::invariant}});
  for (size_t at = 0; at < tokens.size(); at += 4) {
    const auto chunk = std::span(tokens).subspan(at, std::min<size_t>(4, tokens.size() - at));
    steps.append_with_logits(0, chunk);
    for (size_t i = 0; i < chunk.size(); ++i) {
      Logits logits(loaded.vocab());
      steps.read_logits(static_cast<int64_t>(i), logits);
      EXPECT_EQ(logits, expected[at + i]) << at + i;
    }
  }
  EXPECT_EQ(steps.length(0), 11);
  expect_error([&] { steps.append_with_logits(0, tokens); }, {"tokens of a step", "11 is outside 1 to 4"});
  expect_error([&] { steps.append_with_logits(0, Tokens{1003}); }, {"'1003'", "1003 tokens"});
}

// A checkpoint that needs more than the device has.
TEST(DirectStepsMemoryOnCpuDriver, AModelThatDoesNotFitStatesTheBytesNeededAndFree) {
  const std::string line = error_of([] { LoadedModel("llama/odd_sizes", "cpu:memory_mb=1"); });
  expect_words(line, {"'weights'", "cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY"});
  unsigned long long needed = 0, free = 0, total = 0;
  const size_t at = line.find("needs ");
  ASSERT_NE(at, std::string::npos) << line;
  ASSERT_EQ(std::sscanf(line.c_str() + at, "needs %llu bytes, %llu of %llu are free", &needed, &free, &total), 3)
      << line;
  EXPECT_GT(needed, free);
  EXPECT_LE(free, total);
  EXPECT_EQ(total, 1u << 20);
}

TEST(DirectStepsMemoryOnCpuDriver, ACacheThatDoesNotFitIsNamedAndLeavesNothing) {
  LoadedModel loaded("llama/odd_sizes", "cpu:memory_mb=3");
  const uint64_t free = loaded.device.free_bytes();
  expect_error([&] { loaded.decoder({.max_context = 512, .sequences = 100}); }, {"'kv'", "of 3145728 are free"});
  EXPECT_EQ(loaded.device.free_bytes(), free);
}

// A kernel that reads outside every allocation. On a GPU it would cost the process its context.
TEST(DirectStepsOnCpuDriver, AKernelThatReadsOutsideMemoryEndsInOneErrorThatNamesItsNode) {
  {
    LoadedModel loaded("llama/odd_sizes", "cpu", Observe::yes);
    Decoder decoder = loaded.decoder(decoder_options(2));
    const int32_t a = decoder.open(), b = decoder.open();
    uint32_t attend = 0;
    while (decoder.plan().nodes.at(attend).name != "l1.attend") ++attend;
    ExplicitGraph& graph = *decoder.run().explicit_graph();
    graph.patch(Node<RopeFlashDecode>{{attend, graph.plan().id}}, &RopeFlashDecode::table_stride, int64_t{1} << 40);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        decoder.step({{.sequence = a, .token = 1}, {.sequence = b, .token = 2}});
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        const std::string line = error.what();
        EXPECT_NE(line.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos) << line;
        EXPECT_NE(line.find("l1.attend"), std::string::npos) << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      }
    }
    EXPECT_EQ(decoder.length(a), 0);
  }
  // The next device starts afresh.
  LoadedModel loaded("llama/odd_sizes", "cpu");
  Decoder decoder = loaded.decoder(decoder_options(2));
  decoder.step({{.sequence = decoder.open(), .token = 1}});
}

}  // namespace
}  // namespace nodewright
