// Who wrote a text stays known through every normalizer: special tokens that the template wrote stay single tokens, and
// none comes out of what the user wrote. The template here is "<|a|>" + the user's text + "<|b|>".
#include <gtest/gtest.h>

#include <random>

#include "tests/text/tokenizer_goldens.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokens/marked_text.h"

namespace nodewright {
namespace {

using MarkJson = nlohmann::json;
using MarkIds = std::vector<TokenId>;

constexpr TokenId kFirstOfTemplate = 300, kLastOfTemplate = 301;

MarkJson one(const std::string& type) { return {{"type", type}}; }
MarkJson replacing(const MarkJson& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}
MarkJson in_sequence(std::vector<MarkJson> steps) { return {{"type", "Sequence"}, {"normalizers", std::move(steps)}}; }

// Each normalizer of tokenizer.json, alone and as released files join them.
const std::vector<std::pair<std::string, MarkJson>>& normalizers() {
  static const std::vector<std::pair<std::string, MarkJson>> all = {
      {"none", nullptr},
      {"NFC", one("NFC")},
      {"NFD", one("NFD")},
      {"NFKC", one("NFKC")},
      {"NFKD", one("NFKD")},
      {"Lowercase", one("Lowercase")},
      {"StripAccents", one("StripAccents")},
      {"Nmt", one("Nmt")},
      {"Replace", replacing({{"String", "~"}}, "-")},
      {"Replace, longer", replacing({{"String", "-"}}, "<|b|>")},
      {"Replace by a regex", replacing({{"Regex", " {2,}"}}, " ")},
      {"Replace over both", replacing({{"Regex", ">[~\u0301]"}}, "!")},
      {"Replace of nothing", replacing({{"Regex", "(?=x)"}}, "\u2581")},
      {"Strip", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}},
      {"Bert",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", true},
        {"strip_accents", nullptr},
        {"lowercase", true}}},
      {"Sequence", in_sequence({one("NFKC"), one("Lowercase"), replacing({{"Regex", "\\s+"}}, " ")})},
      {"Gemma", replacing({{"String", " "}}, "\u2581")}};
  return all;
}

Tokenizer tokenizer_with(const MarkJson& normalizer, bool normalized, const MarkJson& flags = MarkJson::object()) {
  MarkJson file = character_tokenizer();
  file["normalizer"] = normalizer;
  for (const auto& [id, content] : {std::pair{kFirstOfTemplate, "<|a|>"}, {kLastOfTemplate, "<|b|>"}}) {
    MarkJson token = added_token(id, content, true);
    token["normalized"] = normalized;
    token.update(flags);
    file["added_tokens"].push_back(token);
  }
  return load(file);
}

struct Chat {
  std::string text, plain;
  void add(std::string_view part, bool users) {
    text += part;
    plain.append(part.size(), users ? '\1' : '\0');
  }
};

Chat chat_of(std::string_view users) {
  Chat chat;
  chat.add("<|a|>", false);
  chat.add(users, true);
  chat.add("<|b|>", false);
  return chat;
}

// The special tokens of a prompt, in order.
MarkIds specials_in(const Tokenizer& tokenizer, const Chat& chat) {
  MarkIds ids = tokenizer.encode(chat.text, {.parse_special = true, .plain = chat.plain});
  std::erase_if(ids, [](TokenId id) { return id < kFirstOfTemplate; });
  return ids;
}

// What has made a normalizer join, move or drop something beside a token; and attempts to write one.
constexpr const char* kUsersTexts[] = {"hi",
                                       "a-b",
                                       "a~b",
                                       "~",
                                       "\u0301",
                                       "\u0338\u0301",
                                       "e\u0301\u0323",
                                       "\u0323\u0307a",
                                       " a  b ",
                                       "  ",
                                       "",
                                       "\t\n",
                                       "<|b|>",
                                       "<|B|>",
                                       "<|a|><|b|>",
                                       "x<|b|",
                                       "|>",
                                       "<",
                                       ">",
                                       "<|a",
                                       "\uFF1C|b|\uFF1E",
                                       "<\u0338|b|>",
                                       "\u4E2D\u6587",
                                       "\uFB01<|b|>\u0344",
                                       "-",
                                       "<|b\u0301|>",
                                       "\u2260",
                                       "\u1100\u1161\u11A8",
                                       "\u200D\u0301",
                                       "\u0130<|b|>",
                                       "x"};

TEST(Marks, KeepTheTemplatesTokensAndNoneOfTheUsersThroughEveryNormalizer) {
  for (const auto& [name, normalizer] : normalizers()) {
    for (const bool normalized : {false, true}) {
      const Tokenizer tokenizer = tokenizer_with(normalizer, normalized);
      for (const std::string users : kUsersTexts)
        EXPECT_EQ(specials_in(tokenizer, chat_of(users)), (MarkIds{kFirstOfTemplate, kLastOfTemplate}))
            << name << (normalized ? ", normalized" : "") << ": " << users;
    }
  }
}

// A prompt of several turns, all of which are in one piece of the text.
TEST(Marks, KeepEveryTurnOfALongConversation) {
  std::mt19937 random(1);
  for (const auto& [name, normalizer] : normalizers()) {
    const Tokenizer tokenizer = tokenizer_with(normalizer, true);
    Chat chat;
    MarkIds wanted;
    for (int turn = 0; turn < 200; ++turn) {
      std::string users;
      for (int part = 0; part < 3; ++part) users += kUsersTexts[random() % std::size(kUsersTexts)];
      const Chat one_turn = chat_of(users);
      chat.text += one_turn.text;
      chat.plain += one_turn.plain;
      wanted.insert(wanted.end(), {kFirstOfTemplate, kLastOfTemplate});
    }
    EXPECT_EQ(specials_in(tokenizer, chat), wanted) << name;
  }
}

TEST(Marks, LeaveAllOtherTokensAsTheyAreWithoutMarks) {
  for (const auto& [name, normalizer] : normalizers()) {
    const Tokenizer tokenizer = tokenizer_with(normalizer, true);
    for (const std::string users : {"hi", "a-b", "a~b", "ab  e\u0301x", "\u4E2D\u6587 \uFB01", "\u0130X \u2260"}) {
      if (name == "Replace, longer" && users == "a-b") continue;  // the user's own would become special
      const Chat chat = chat_of(users);
      EXPECT_EQ(tokenizer.encode(chat.text, {.parse_special = true, .plain = chat.plain}),
                tokenizer.encode(chat.text, {.parse_special = true}))
          << name << ": " << users;
    }
  }
}

// Llama-2's: the token is looked for with the space before it, which the user may have written.
TEST(Marks, KeepATokenWhoseSpaceTheUserWrote) {
  const MarkJson llama =
      in_sequence({{{"type", "Prepend"}, {"prepend", "\u2581"}}, replacing({{"String", " "}}, "\u2581")});
  const Tokenizer tokenizer = tokenizer_with(llama, true);
  EXPECT_EQ(specials_in(tokenizer, chat_of("hi ")), (MarkIds{kFirstOfTemplate, kLastOfTemplate}));
  EXPECT_EQ(specials_in(tokenizer, chat_of("hi <|b|> ")), (MarkIds{kFirstOfTemplate, kLastOfTemplate}));
  EXPECT_EQ(specials_in(tokenizer, chat_of("hi")), MarkIds{kFirstOfTemplate});  // as the oracle has it
}

TEST(Marks, HoldWhateverElseATokenAsksFor) {
  for (const bool normalized : {false, true}) {
    for (const char* flag : {"lstrip", "rstrip"}) {
      const Tokenizer tokenizer = tokenizer_with(one("NFKC"), normalized, {{flag, true}});
      for (const std::string users : kUsersTexts)
        EXPECT_EQ(specials_in(tokenizer, chat_of(users)), (MarkIds{kFirstOfTemplate, kLastOfTemplate}))
            << flag << ": " << users;
    }
    const Tokenizer words = tokenizer_with(one("NFKC"), normalized, {{"single_word", true}});
    EXPECT_EQ(specials_in(words, chat_of("!<|b|>!")), (MarkIds{kFirstOfTemplate, kLastOfTemplate}));
    EXPECT_EQ(specials_in(words, chat_of("word")), MarkIds{});  // as the oracle has it
  }
}

// Neither a longer token that ends in the user's text, nor one that begins there, takes the place of the template's.
TEST(Marks, LetNoTokenReachFromTheUsersTextIntoATemplatesToken) {
  for (const bool normalized : {false, true}) {
    for (const bool special : {false, true}) {
      MarkJson file = character_tokenizer();
      file["normalizer"] = one("NFC");
      for (const auto& [id, content, is_special] : {std::tuple{kFirstOfTemplate, "<|a|>", true},
                                                    {kLastOfTemplate, "<|b|>", true},
                                                    {299, "<|a|>!", special},
                                                    {298, "?<", special}}) {
        file["added_tokens"].push_back(added_token(id, content, is_special));
        file["added_tokens"].back()["normalized"] = normalized;
      }
      const Tokenizer tokenizer = load(file);
      EXPECT_EQ(specials_in(tokenizer, chat_of("!ab?")), (MarkIds{kFirstOfTemplate, kLastOfTemplate}));
      EXPECT_EQ(specials_in(tokenizer, chat_of("!")), (MarkIds{kFirstOfTemplate, kLastOfTemplate}));
    }
  }
}

// The marks themselves, step by step: a byte is the user's exactly where a byte of the user's went into it.
TEST(Marks, AreAsLongAsTheTextBehindEveryStep) {
  std::mt19937 random(2);
  std::vector<std::pair<std::string, Normalizer>> steps;
  const auto add = [&](const char* name, NormalizerStep step) {
    steps.emplace_back(name, Normalizer()).second.add(std::move(step));
  };
  add("NFC", NormalForm::nfc);
  add("NFKD", NormalForm::nfkd);
  add("Replace", Replacement{"a", "bcd"});
  add("Replace by a regex", Replacement{"", "bcd", Regex("[ab|]+", "test")});
  add("Prepend", Prepend{"__"});
  add("Strip", StripSpaces{});
  add("StripAccents", StripAccents{});
  add("Lowercase", Lowercase{});
  add("Nmt", Nmt{});
  add("BertNormalizer", BertText{});
  add("ByteLevel", ByteLetters{});
  add("Precompiled", CharacterMap{});
  add("SentencePiece", PieceText{});
  for (const auto& [name, normalizer] : steps) {
    for (int round = 0; round < 200; ++round) {
      MarkedText text;
      for (int part = 0; part < 4; ++part) {
        text.text += kUsersTexts[random() % std::size(kUsersTexts)];
        text.marks.resize(text.text.size(), part % 2 == 0 ? '\0' : kUsersByte);
      }
      const std::string plain = normalizer.apply(text.text);
      for (const char mark : {'\0', kUsersByte}) {  // all of one writer
        const MarkedText normal = normalizer.apply({text.text, std::string(text.text.size(), mark)}, true);
        EXPECT_EQ(normal.text, plain) << name;
        ASSERT_EQ(normal.marks.size(), plain.size()) << name;
        if (mark == '\0') {
          EXPECT_EQ(normal.marks.find(kUsersByte), std::string::npos) << name;
        }
      }
      const MarkedText normal = normalizer.apply(text, true);
      EXPECT_EQ(normal.text, plain) << name;
      ASSERT_EQ(normal.marks.size(), plain.size()) << name;
    }
  }
}

}  // namespace
}  // namespace nodewright
