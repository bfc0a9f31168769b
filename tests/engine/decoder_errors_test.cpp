// What a decoder refuses, and that a refusal appends nothing and keeps no page.
#include <functional>

#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

// The one line that `action` is refused with; empty when it is not.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

#define EXPECT_REFUSED(action, ...)                                                                                 \
  do {                                                                                                              \
    const std::string line = refusal([&] { action; });                                                              \
    for (const char* word : {__VA_ARGS__}) EXPECT_NE(line.find(word), std::string::npos) << word << " in " << line; \
  } while (false)

class DecoderErrors : public testing::Test {
 protected:
  static constexpr int64_t kContext = 80;  // two pages a sequence
  LoadedModel loaded{"llama/odd_sizes"};
  DecoderOptions options{.bucket = 2, .prefill_rows = 8, .max_context = kContext, .sequences = 3};
  Decoder decoder = loaded.decoder(options);
  int32_t vocab = static_cast<int32_t>(loaded.vocab());

  int32_t open_with(size_t tokens) {
    const int32_t sequence = decoder.open();
    decoder.append(sequence, some_tokens(tokens, loaded.vocab(), tokens));
    return sequence;
  }
};

TEST_F(DecoderErrors, ATokenOutsideTheVocabularyIsNamed) {
  const int32_t sequence = open_with(3);
  const int64_t pages = decoder.pages().taken();
  for (int32_t token : {vocab, -1, INT32_MAX, INT32_MIN}) {
    const std::string word = "'" + std::to_string(token) + "'";
    EXPECT_REFUSED(decoder.append(sequence, Tokens{1, token, 2}), word.c_str(), "1003 tokens");
    EXPECT_REFUSED(decoder.step({{.sequence = sequence, .token = token}}), word.c_str(), "1003 tokens");
  }
  EXPECT_EQ(decoder.length(sequence), 3);
  EXPECT_EQ(decoder.pages().taken(), pages);
  decoder.append(sequence, Tokens{vocab - 1, 0});
  EXPECT_EQ(decoder.length(sequence), 5);
}

TEST_F(DecoderErrors, LogitsThatAreNotKeptAreNotRead) {
  const int32_t sequence = open_with(3);
  decoder.step({{.sequence = sequence, .token = 1}});
  std::vector<float> row(loaded.vocab());
  EXPECT_REFUSED(decoder.read_logits(0, row), "read the logits", "keep_logits");
}

TEST_F(DecoderErrors, AppendingNothingIsNothing) {
  const int32_t sequence = decoder.open();
  decoder.append(sequence, {});
  EXPECT_EQ(decoder.length(sequence), 0);
  EXPECT_EQ(decoder.pages().taken(), 0);
}

TEST_F(DecoderErrors, AStepNeedsATokenUntilAStepHasChosenOne) {
  const int32_t empty = decoder.open(), prompted = open_with(3);
  EXPECT_REFUSED(decoder.step({{.sequence = empty}}), "'0'", "no step has chosen a token");
  EXPECT_REFUSED(decoder.step({{.sequence = prompted}}), "'1'", "no step has chosen a token");
  EXPECT_EQ(decoder.length(prompted), 3);
  decoder.step({{.sequence = empty, .token = 1}});
  decoder.step({{.sequence = empty}});
  EXPECT_EQ(decoder.length(empty), 2);
  decoder.close(empty);
  EXPECT_REFUSED(decoder.step({{.sequence = decoder.open()}}), "no step has chosen a token");
}

TEST_F(DecoderErrors, APromptLongerThanTheContextAppendsNothing) {
  const int32_t sequence = open_with(3);
  const int64_t pages = decoder.pages().taken();
  EXPECT_REFUSED(decoder.append(sequence, some_tokens(kContext - 2, loaded.vocab(), 1)), "81 tokens", "context of 80");
  EXPECT_EQ(decoder.length(sequence), 3);
  EXPECT_EQ(decoder.pages().taken(), pages);
  decoder.append(sequence, some_tokens(kContext - 3, loaded.vocab(), 1));
  EXPECT_EQ(decoder.length(sequence), kContext);
  EXPECT_REFUSED(decoder.append(sequence, Tokens{1}), "81 tokens", "context of 80");
  EXPECT_REFUSED(decoder.step({{.sequence = sequence, .token = 1}}), "81 tokens", "context of 80");
  EXPECT_EQ(decoder.length(sequence), kContext);
}

TEST_F(DecoderErrors, ARefusedRowKeepsTheOthersFromStepping) {
  const int32_t fine = open_with(64), full = open_with(kContext);
  EXPECT_REFUSED(decoder.step({{.sequence = fine, .token = 1}, {.sequence = full, .token = 1}}), "context of 80");
  EXPECT_EQ(decoder.length(fine), 64);
  decoder.close(fine);
  decoder.close(full);
  EXPECT_EQ(decoder.pages().taken(), 0);
}

TEST_F(DecoderErrors, MoreRowsThanTheBucketOrNoneAreRefused) {
  const int32_t a = open_with(1), b = open_with(1), c = open_with(1);
  EXPECT_REFUSED(decoder.step({{.sequence = a, .token = 1}, {.sequence = b, .token = 1}, {.sequence = c, .token = 1}}),
                 "3 rows", "bucket of 2");
  EXPECT_REFUSED(decoder.step(std::span<const StepRow>()), "0 rows");
  for (int32_t sequence : {a, b, c}) EXPECT_EQ(decoder.length(sequence), 1);
}

TEST_F(DecoderErrors, OneSequenceCannotHaveTwoRows) {
  const int32_t a = open_with(1);
  EXPECT_REFUSED(decoder.step({{.sequence = a, .token = 1}, {.sequence = a, .token = 2}}), "sequence 0 has two rows");
  EXPECT_EQ(decoder.length(a), 1);
}

TEST_F(DecoderErrors, NoMoreSequencesThanAllowedAreOpen) {
  for (int i = 0; i < 3; ++i) decoder.open();
  EXPECT_REFUSED(decoder.open(), "all 3 are open");
  decoder.close(1);
  EXPECT_EQ(decoder.open(), 1);
}

TEST_F(DecoderErrors, AClosedOrUnknownSequenceIsNamed) {
  const int32_t sequence = open_with(3);
  decoder.close(sequence);
  EXPECT_EQ(decoder.pages().taken(), 0);
  for (int32_t gone : {sequence, -1, 3, INT32_MAX}) {
    const std::string word = "'" + std::to_string(gone) + "'";
    EXPECT_REFUSED(decoder.close(gone), word.c_str(), "not open");
    EXPECT_REFUSED(decoder.append(gone, Tokens{1}), word.c_str(), "not open");
    EXPECT_REFUSED(decoder.step({{.sequence = gone, .token = 1}}), word.c_str(), "not open");
    EXPECT_REFUSED(decoder.length(gone), word.c_str(), "not open");
  }
  EXPECT_EQ(decoder.pages().taken(), 0);
}

TEST_F(DecoderErrors, OptionsOutOfRangeAreNamed) {
  const auto build = [&](auto change) {
    DecoderOptions wrong = options;
    change(wrong);
    loaded.decoder(wrong);
  };
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.bucket = 0; }), "'bucket'", "0 is outside 1 to");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.bucket = -1; }), "'bucket'");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.bucket = 1 << 20; }), "'bucket'", "1048576");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.prefill_rows = 0; }), "'prefill rows'");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.max_context = 0; }), "'max context'");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.max_context = 513; }), "'max context'", "1 to 512");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.sequences = 0; }), "'sequences'");
  EXPECT_REFUSED(build([](DecoderOptions& o) { o.sequences = INT64_MAX; }), "'sequences'");
}

TEST_F(DecoderErrors, AHundredSequencesLeakNoPage) {
  EXPECT_EQ(decoder.pages().total(), 6);
  const Tokens prompt = some_tokens(66, loaded.vocab(), 1);
  for (size_t i = 0; i < 100; ++i) {
    const int32_t sequence = decoder.open();
    // Most are short, and every tenth takes two pages, for time's sake.
    decoder.append(sequence, std::span(prompt).first(i % 10 == 0 ? 66 : 1 + i % 8));
    ASSERT_EQ(decoder.pages().taken(), i % 10 == 0 ? 2 : 1);
    decoder.close(sequence);
    ASSERT_EQ(decoder.pages().taken(), 0);
  }
  // All pages still serve: three full contexts.
  for (int i = 0; i < 3; ++i) open_with(kContext);
  EXPECT_EQ(decoder.pages().taken(), 6);
}

// A checkpoint that needs more than the device has.
TEST(DecoderMemoryOnCpuDriver, AModelThatDoesNotFitStatesTheBytesNeededAndFree) {
  const std::string line = refusal([] { LoadedModel("llama/odd_sizes", "cpu:memory_mb=1"); });
  EXPECT_NE(line.find("'weights'"), std::string::npos) << line;
  EXPECT_NE(line.find("cuMemAlloc"), std::string::npos) << line;
  EXPECT_NE(line.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << line;
  unsigned long long needed = 0, free = 0, total = 0;
  const size_t at = line.find("needs ");
  ASSERT_NE(at, std::string::npos) << line;
  ASSERT_EQ(std::sscanf(line.c_str() + at, "needs %llu bytes, %llu of %llu are free", &needed, &free, &total), 3)
      << line;
  EXPECT_GT(needed, free);
  EXPECT_LE(free, total);
  EXPECT_EQ(total, 1u << 20);
}

TEST(DecoderMemoryOnCpuDriver, ACacheThatDoesNotFitStatesTheBytesNeededAndFree) {
  LoadedModel loaded("llama/odd_sizes", "cpu:memory_mb=3");
  const uint64_t free = loaded.device.free_bytes();
  const std::string line =
      refusal([&] { loaded.decoder({.bucket = 1, .prefill_rows = 8, .max_context = 512, .sequences = 100}); });
  EXPECT_NE(line.find("'kv'"), std::string::npos) << line;
  EXPECT_NE(line.find("bytes, " + std::to_string(free) + " of 3145728 are free"), std::string::npos) << line;
  EXPECT_EQ(loaded.device.free_bytes(), free) << "the decoder that was not built kept memory";
}

}  // namespace
}  // namespace nodewright
