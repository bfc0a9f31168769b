// tokenizer.model with the files that transformers writes beside it, and files that are not models.
#include "text/tokenizer/files/piece_file.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/text/tokenizer_goldens.h"

namespace nodewright {
namespace {

using PieceIds = std::vector<TokenId>;
using SettingsJson = nlohmann::json;
namespace fs = std::filesystem;

// The golden model of SentencePiece's BPE in a folder of its own.
class PieceFile : public testing::Test {
 protected:
  PieceFile() {
    fs::create_directory(folder_);
    fs::copy_file(test::source_dir() / "tests/golden/pipelines/pieces_bpe/tokenizer.model",
                  folder_ / "tokenizer.model");
  }
  ~PieceFile() override { fs::remove_all(folder_); }

  void write(const char* name, const std::string& content) const { std::ofstream(folder_ / name) << content; }
  Tokenizer load() const { return Tokenizer::from_folder(folder_); }
  PieceIds prompt(const Tokenizer& tokenizer, const std::string& text) const {
    return tokenizer.encode(text, {.parse_special = true, .add_special_tokens = true});
  }

  const fs::path folder_ = fs::temp_directory_path() / ("nodewright-pieces-" + std::to_string(::getpid()));
  const TokenId unknown_ = 0, bos_ = 1, eos_ = 2;  // SentencePiece's own
};

TEST_F(PieceFile, PutsTheBeginInFrontUnlessTheSettingsSayOtherwise) {
  const PieceIds plain = load().encode("the end");
  PieceIds whole = plain;
  whole.insert(whole.begin(), bos_);
  EXPECT_EQ(prompt(load(), "the end"), whole);
  write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true})");
  whole = plain;
  whole.push_back(eos_);
  EXPECT_EQ(prompt(load(), "the end"), whole);
}

TEST_F(PieceFile, TakesControlPiecesFromATemplateAndNeverFromAUser) {
  const Tokenizer tokenizer = load();
  EXPECT_TRUE(tokenizer.is_special(unknown_));
  EXPECT_TRUE(tokenizer.is_special(tokenizer.token_to_id("<ctl>").value()));
  for (const TokenId id : tokenizer.encode("<s>a</s><ctl>")) EXPECT_FALSE(id == bos_ || id == eos_);
  const PieceIds parsed = tokenizer.encode("<s>a</s>", {.parse_special = true});
  EXPECT_EQ(parsed.front(), bos_);
  EXPECT_EQ(parsed.back(), eos_);
}

TEST_F(PieceFile, AddsASpaceBehindASpecialTokenOnlyAsALegacyModelDoes) {
  const PieceIds word = load().encode("the");  // with the space that SentencePiece adds
  PieceIds behind = load().encode("<s>the", {.parse_special = true});
  EXPECT_EQ(PieceIds(behind.begin() + 1, behind.end()), word);
  write("tokenizer_config.json", R"({"legacy": false})");
  EXPECT_EQ(load().encode("the"), word);
  behind = load().encode("<s>the", {.parse_special = true});
  EXPECT_NE(PieceIds(behind.begin() + 1, behind.end()), word);
}

TEST_F(PieceFile, KnowsTheTokensThatTheSettingsAdd) {
  const auto size = static_cast<TokenId>(load().vocab_size());
  write("added_tokens.json", SettingsJson{{"<|im_start|>", size}}.dump());
  EXPECT_EQ(load().token_to_id("<|im_start|>"), size);
  EXPECT_FALSE(load().is_special(size));
  const SettingsJson added = {
      {std::to_string(size + 1), {{"content", "<|im_end|>"}, {"special", true}, {"rstrip", true}}}};
  write("tokenizer_config.json", SettingsJson{{"added_tokens_decoder", added}}.dump());
  const Tokenizer tokenizer = load();
  EXPECT_TRUE(tokenizer.is_special(size + 1));
  EXPECT_EQ(tokenizer.encode("<|im_end|>  ", {.parse_special = true}), PieceIds{size + 1});
}

TEST_F(PieceFile, NamesSettingsThatAreWrong) {
  const std::pair<std::string, std::string> kWrong[] = {
      {R"({"add_bos_token": 1})", "add_bos_token of the file is number, not a boolean"},
      {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "an id of 'added_tokens_decoder' is 'x', not a number"},
      {R"({"added_tokens_decoder": {"7": {"content": 3}}})", "content of added token '7' is number"},
      {"[", "not valid JSON"},
  };
  for (const auto& [content, words] : kWrong) {
    write("tokenizer_config.json", content);
    try {
      load();
      ADD_FAILURE() << content << " was read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("tokenizer_config.json"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST_F(PieceFile, RefusesWhatIsNoModel) {
  const std::string whole = read_text(folder_ / "tokenizer.model");
  const std::pair<std::string, std::string> kNone[] = {
      {"", "it has no pieces"},
      {"x", "cut short, or the file is not a SentencePiece model"},
      {whole.substr(0, whole.size() / 2), "cut short, or the file is not a SentencePiece model"},
      {whole + whole, "appears twice"},
      {std::string("\x0A\x03\x0A\x01") + "a", "it has no unknown piece"},
      {std::string("\x0A\x05\x0A\x01") + "a\x18\x02\x0A\x05\x0A\x01" + "b\x18\x02",
       "pieces 0 and 1 are both the unknown one"},
      {std::string("\x0A\x05\x0A\x01") + "a\x18\x02\x12\x02\x18\x03", "model_type 3, neither Unigram (1) nor BPE (2)"},
  };
  for (const auto& [content, words] : kNone) {
    std::ofstream(folder_ / "tokenizer.model", std::ios::binary) << content;
    try {
      read_piece_file(folder_ / "tokenizer.model");
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("tokenizer.model"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace nodewright
