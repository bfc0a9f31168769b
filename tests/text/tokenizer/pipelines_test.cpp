// Every kind of pipeline against its own library (tests/golden/pipelines), streamed and whole, and damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/error.h"
#include "tests/support/processor_time.h"
#include "tests/support/scratch_folder.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokens/normal_text.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using PipelineIds = std::vector<TokenId>;
using PipelineJson = nlohmann::json;
namespace fs = std::filesystem;

fs::path pipelines() { return test::source_dir() / "tests/golden/pipelines"; }

std::vector<std::string> kinds_of_pipelines() {
  std::vector<std::string> kinds;
  for (const auto& entry : fs::directory_iterator(pipelines())) kinds.push_back(entry.path().filename().string());
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

class Pipeline : public testing::TestWithParam<std::string> {
 protected:
  const fs::path folder_ = pipelines() / GetParam();
  const Tokenizer tokenizer_ = Tokenizer::from_folder(folder_);
  const PipelineJson cases_ = read_json(folder_ / "cases.json");
};

INSTANTIATE_TEST_SUITE_P(Kinds, Pipeline, testing::ValuesIn(kinds_of_pipelines()),
                         [](const auto& info) { return info.param; });

TEST(Pipelines, ATextThatGrowsBeyondMeasureIsRefusedBeforeItFillsTheMemory) {
  EXPECT_EQ(replace_all("aba", "a", "cc"), "ccbcc");
  EXPECT_THROW(replace_all(std::string(300, 'a'), "a", std::string(1'000'000, 'b')), Error);
}

TEST(Pipelines, AreAllThere) { EXPECT_GE(kinds_of_pipelines().size(), 22u); }

TEST_P(Pipeline, EncodesAsItsLibraryDoes) {
  ASSERT_GE(cases_["encode"].size(), 100u);
  expect_encoded(tokenizer_, cases_, fs::exists(folder_ / "tokenizer.json"));
}

TEST_P(Pipeline, DecodesAsItsLibraryDoes) {
  ASSERT_GE(cases_["decode"].size(), 90u);
  expect_decoded(tokenizer_, cases_);
}

TEST_P(Pipeline, StreamsWholeCharactersThatJoinToTheDecodedText) {
  for (const auto& one : cases_["decode"]) {
    for (const bool skip : {false, true}) {
      TextStream stream(tokenizer_, skip);
      std::string text;
      for (const TokenId id : one["ids"].get<PipelineIds>()) {
        const std::string part = stream.push(id);
        EXPECT_EQ(to_valid_utf8(part), part) << one;
        text += part;
      }
      EXPECT_EQ(text + stream.flush(), one[skip ? "skipped" : "kept"].get<std::string>()) << one;
    }
  }
}

// A hundred mutations: each loads or gives one line that names the file, and what loads can be used.
TEST_P(Pipeline, SurvivesADamagedFile) {
  const fs::path file = Tokenizer::file_in(folder_).value();
  const std::string whole = read_text(file);
  const fs::path folder = fs::temp_directory_path() / ("nodewright-damaged-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const fs::path damaged_file = folder / file.filename();
  std::mt19937 random(17);
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    std::string damaged = whole;
    // Half of them where the components stand, in front of and after the vocabulary.
    const std::size_t end = round % 2 == 0 ? damaged.size() : std::min<std::size_t>(damaged.size(), 2000);
    for (int i = 0; i < 2; ++i) damaged[random() % end] = "{}[]\",:0a\\\xFF\x01"[random() % 12];
    if (round % 10 == 9) damaged.resize(random() % damaged.size());
    std::ofstream(damaged_file, std::ios::binary) << damaged;
    try {
      const Tokenizer tokenizer = Tokenizer::from_file(damaged_file);
      const PipelineIds ids = tokenizer.encode(" Hello, w\u00F6rld!\n12 \U0001F600 \xFF", {.add_special_tokens = true});
      EXPECT_EQ(to_valid_utf8(tokenizer.decode(ids)), tokenizer.decode(ids));
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  fs::remove_all(folder);
  EXPECT_GT(refused, 20);
}

TEST(Pipelines, KeepTheSpaceOfTheFirstWordBehindAPrompt) {
  const Tokenizer tokenizer = Tokenizer::from_folder(pipelines() / "llama2");
  const PipelineIds ids = tokenizer.encode("the engine");
  EXPECT_EQ(tokenizer.decode(ids), "the engine");
  EXPECT_EQ(tokenizer.decode(ids, true, TextStart::behind_prompt), " the engine");
  TextStream stream(tokenizer, true, TextStart::behind_prompt);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  EXPECT_EQ(text + stream.flush(), " the engine");
}

TEST(Pipelines, HoldBackTheSpacesThatStripMayTakeFromTheEnd) {
  const Tokenizer tokenizer = Tokenizer::from_folder(pipelines() / "splits");  // up to 3 at the end
  const auto space = tokenizer.token_to_id(" ");
  const auto letter = tokenizer.token_to_id("b");
  ASSERT_TRUE(space && letter);
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.push(*letter), "b");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stream.push(*space), "");
  EXPECT_EQ(stream.push(*space), " ");  // one more than it takes
  EXPECT_EQ(stream.push(*letter), "   b");
  EXPECT_EQ(stream.push(*space), "");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Pipelines, CutAMegabyteOfOneWordInUnderASecondWhateverTheFileAllows) {
  PipelineJson file = read_json(pipelines() / "bert/tokenizer.json");
  file["model"]["max_input_chars_per_word"] = 2000000000;
  const Tokenizer tokenizer = load(file);
  PipelineIds ids;
  EXPECT_LT(test::seconds_of([&] { ids = tokenizer.encode(std::string(1 << 20, 'a')); }), test::allowed_seconds(1));
  EXPECT_EQ(tokenizer.decode(ids), std::string(1 << 20, 'a'));
}

TEST(Pipelines, EncodeAMegabyteOfOneCharacterInUnderASecondWhateverTheModel) {
  for (const char* kind :
       {"llama2", "t5", "xlm_roberta", "bert", "pieces_bpe", "pieces_unigram", "tekken", "deepseek"}) {
    const Tokenizer tokenizer = Tokenizer::from_folder(pipelines() / kind);
    for (const std::string unit : {"a", " ", "\xFF", "\u00E9 "}) {
      std::string text;
      while (text.size() < 1 << 20) text += unit;
      PipelineIds ids;
      EXPECT_LT(test::seconds_of([&] { ids = tokenizer.encode(text); }), test::allowed_seconds(1))
          << kind << " " << unit;
    }
  }
}

}  // namespace
}  // namespace nodewright
