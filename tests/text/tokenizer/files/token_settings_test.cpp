// What the files beside a tokenizer.json say of its tokens, wherever they say it.
#include "text/tokenizer/files/token_settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "runtime/error.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/chat/chat_template.h"

namespace nodewright {
namespace {

using TokenJson = nlohmann::json;
using TokenIds = std::vector<TokenId>;

// A folder with the tokenizer of characters, to whose vocabulary "<e>" (259) and "ab" (260) belong.
class TokenSettingsOfAFolder : public testing::Test {
 protected:
  TokenSettingsOfAFolder() {
    std::filesystem::create_directory(folder_);
    file_ = character_tokenizer();
    file_["model"]["vocab"]["<e>"] = 259;
    file_["model"]["vocab"]["ab"] = 260;
    write("tokenizer.json", file_);
  }
  ~TokenSettingsOfAFolder() override { std::filesystem::remove_all(folder_); }

  void write(const char* name, const TokenJson& content) const { std::ofstream(folder_ / name) << content.dump(); }
  Tokenizer load() const { return Tokenizer::from_folder(folder_); }
  static TokenIds prompt(const Tokenizer& tokenizer, const std::string& text) {
    return tokenizer.encode(text, {.parse_special = true});
  }
  std::string rendered(const std::string& source) const {
    std::ofstream(folder_ / "chat_template.jinja") << source;
    return ChatTemplate::from_folder(folder_).render({{"user", "hi"}}).text;
  }
  static TokenJson entry(const std::string& content, bool special) {
    return {{"content", content}, {"special", special}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}};
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("nodewright-settings-" + std::to_string(::getpid()));
  TokenJson file_;
};

TEST_F(TokenSettingsOfAFolder, AddTheTokensThatOnlyTheyHave) {
  write("tokenizer_config.json",
        {{"added_tokens_decoder", {{"300", entry("<x>", true)}, {"301", entry("<y>", false)}}}});
  write("added_tokens.json", {{"<z>", 302}, {"<x>", 300}, {"<stale>", 257}});
  const Tokenizer tokenizer = load();
  EXPECT_EQ(prompt(tokenizer, "<x><y><z>a"), (TokenIds{300, 301, 302, 257}));
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301));
  EXPECT_FALSE(tokenizer.is_special(302));
  EXPECT_EQ(tokenizer.token_to_id("<stale>"), std::nullopt);  // the vocabulary has that id
  EXPECT_EQ(tokenizer.encode("<x>").size(), 3u);              // not out of a user's text
}

TEST_F(TokenSettingsOfAFolder, SayWhichTokensAreSpecialByEveryName) {
  file_["added_tokens"].push_back(added_token(300, "<x>", false));
  write("tokenizer.json", file_);
  const std::pair<const char*, TokenJson> kWays[] = {
      {"tokenizer_config.json", {{"added_tokens_decoder", {{"300", entry("<x>", true)}}}}},
      {"tokenizer_config.json", {{"pad_token", "<x>"}}},
      {"tokenizer_config.json", {{"image_token", {{"content", "<x>"}, {"lstrip", false}}}}},
      {"tokenizer_config.json", {{"additional_special_tokens", {"<x>"}}}},
      {"tokenizer_config.json", {{"extra_special_tokens", {{"of_mine", "<x>"}}}}},
      {"special_tokens_map.json", {{"additional_special_tokens", {{{"content", "<x>"}}}}}},
      {"special_tokens_map.json", {{"eos_token", {{"content", "<x>"}}}}},
  };
  EXPECT_FALSE(load().is_special(300));
  for (const auto& [name, content] : kWays) {
    write(name, content);
    EXPECT_TRUE(load().is_special(300)) << content;
    EXPECT_EQ(load().decode(TokenIds{257, 300}), "a") << content;
    std::filesystem::remove(folder_ / name);
  }
}

TEST_F(TokenSettingsOfAFolder, MakeAWordOfTheVocabularySpecialButNoCharacter) {
  write("tokenizer_config.json",
        {{"eos_token", "<e>"}, {"pad_token", "a"}, {"unk_token", nullptr}, {"sep_token", "<no>"}});
  const Tokenizer tokenizer = load();
  EXPECT_TRUE(tokenizer.is_special(259));
  EXPECT_EQ(prompt(tokenizer, "<e>"), TokenIds{259});
  EXPECT_FALSE(tokenizer.is_special(257));  // "a" stays a letter
  EXPECT_EQ(tokenizer.token_to_id("<no>"), std::nullopt);
}

TEST_F(TokenSettingsOfAFolder, NameTheTokenThatEndsAText) {
  EXPECT_EQ(load().end_of_text(), std::nullopt);
  write("special_tokens_map.json", {{"eos_token", "<e>"}});
  EXPECT_EQ(load().end_of_text(), 259);
  write("tokenizer_config.json", {{"eos_token", nullptr}});
  EXPECT_EQ(load().end_of_text(), 259);  // null takes nothing away
  write("tokenizer_config.json", {{"eos_token", "a"}, {"added_tokens_decoder", {{"300", entry("<x>", true)}}}});
  EXPECT_EQ(load().end_of_text(), 257);  // which of the two files counts is as in transformers
  write("tokenizer_config.json", {{"eos_token", "no token"}, {"added_tokens_decoder", TokenJson::object()}});
  EXPECT_EQ(load().end_of_text(), std::nullopt);
}

TEST_F(TokenSettingsOfAFolder, GiveTemplatesEveryTokenByName) {
  write("tokenizer_config.json", {{"bos_token", "<s>"},
                                  {"pad_token", {{"content", "<p>"}}},
                                  {"mask_token", "<m>"},
                                  {"add_bos_token", true},
                                  {"image_token", "<i>"},
                                  {"additional_special_tokens", {"<one>", {{"content", "<two>"}}}}});
  write("special_tokens_map.json",
        {{"eos_token", "</s>"}, {"cls_token", {{"content", "<c>"}}}, {"sep_token", nullptr}});
  EXPECT_EQ(rendered("{{bos_token}}{{eos_token}}{{pad_token}}{{cls_token}}{{mask_token}}{{image_token}}|{{sep_token}}|"
                     "{{ additional_special_tokens | join('') }}{{ extra_special_tokens[1] }}"),
            "<s></s><p><c><m><i>||<one><two><two>");
}

TEST_F(TokenSettingsOfAFolder, MayRepeatWhatAnotherSays) {
  file_["added_tokens"] = {added_token(300, "<x>", true), added_token(300, "<x>", true)};
  write("tokenizer.json", file_);
  write("tokenizer_config.json", {{"added_tokens_decoder", {{"300", entry("<x>", true)}}}, {"eos_token", "<x>"}});
  write("added_tokens.json", {{"<x>", 300}});
  EXPECT_EQ(prompt(load(), "<x>"), TokenIds{300});
  std::string text = file_.dump();
  const std::string word = "\"ab\":260";
  text.replace(text.find(word), word.size(), word + "," + word);  // a key twice, with one value
  std::ofstream(folder_ / "tokenizer.json") << text;
  EXPECT_EQ(load().token_to_id("ab"), 260);
}

TEST_F(TokenSettingsOfAFolder, AreRefusedByNameWhereTheyAreWrong) {
  const std::pair<TokenJson, std::string> kWrong[] = {
      {{{"eos_token", 5}}, "eos_token is number, not a string or an object with 'content'"},
      {{{"eos_token", TokenJson::object()}}, "content of eos_token is null, not a string"},
      {{{"added_tokens_decoder", {{"x", entry("a", true)}}}}, "an id of 'added_tokens_decoder' is 'x', not a number"},
      {{{"added_tokens_decoder", {{"257", entry("<x>", true)}}}}, "has the id 257 of another token"},
      {{{"additional_special_tokens", 3}}, "'additional_special_tokens' is number, not an array"},
  };
  for (const auto& [content, words] : kWrong) {
    write("tokenizer_config.json", content);
    try {
      load();
      ADD_FAILURE() << content << " was read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace nodewright
