// Tokenizers of GGUF files: the ids that the libraries give for the files that they are made from here.
#include "text/tokenizer/files/gguf_tokenizer.h"

#include <algorithm>
#include <limits>

#include "tests/base/gguf_writer.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/files/piece_file.h"

namespace nodewright {
namespace {

struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 a byte
};

GgufVocabulary vocabulary_of(const TokenizerFile& file) {
  size_t count = 0;
  for (const auto& [spelling, id] : file.model.vocab) count = std::max(count, static_cast<size_t>(id) + 1);
  for (const AddedToken& token : file.added_tokens) count = std::max(count, static_cast<size_t>(token.id) + 1);
  GgufVocabulary v{std::vector<std::string>(count), std::vector<int32_t>(count, 5)};
  for (const auto& [spelling, id] : file.model.vocab) {
    v.tokens[static_cast<size_t>(id)] = spelling;
    v.types[static_cast<size_t>(id)] = 1;
  }
  for (const AddedToken& token : file.added_tokens) {
    v.tokens[static_cast<size_t>(token.id)] = token.content;
    v.types[static_cast<size_t>(token.id)] = token.special ? 3 : 4;
  }
  return v;
}

test::GgufWriter byte_pairs(const std::string& family, const char* pre) {
  const TokenizerFile file = read_tokenizer_file(golden_tokenizer(family));
  const GgufVocabulary v = vocabulary_of(file);
  std::vector<std::string> merges;
  for (const auto& [left, right] : file.model.merges) merges.push_back(left + " " + right);
  test::GgufWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", pre);
  writer.add("tokenizer.ggml.tokens", v.tokens);
  writer.add("tokenizer.ggml.token_type", v.types);
  writer.add("tokenizer.ggml.merges", merges);
  if (!file.prefix.empty()) {
    writer.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(file.prefix[0]));
    // Published files of Llama 3 leave the key out.
    if (std::string_view(pre) != "llama-bpe") writer.add("tokenizer.ggml.add_bos_token", true);
  }
  return writer;
}

TEST(GgufTokenizer, GivesTheIdsOfByteLevelTokenizers) {
  for (const auto& [family, pre] :
       {std::pair{"llama3", "llama-bpe"}, std::pair{"qwen", "qwen2"}, std::pair{"gpt2", "gpt-2"}}) {
    SCOPED_TRACE(family);
    const ScratchFolder folder;
    const Tokenizer tokenizer = Tokenizer::from_folder(folder.write("m.gguf", byte_pairs(family, pre).bytes()));
    const nlohmann::json cases = golden_cases(family);
    ASSERT_GT(cases["encode"].size(), 20u);
    expect_encoded(tokenizer, cases);
    expect_decoded(tokenizer, cases);
  }
}

TEST(GgufTokenizer, RefusesATypeThatIsNoNumberOfOne) {
  for (const float type : {std::numeric_limits<float>::quiet_NaN(), 1e30f, -1.0f, 1.5f, 7.0f}) {
    test::GgufWriter writer;
    writer.add("tokenizer.ggml.model", "gpt2");
    writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
    writer.add("tokenizer.ggml.token_type", std::vector<float>{type});
    const ScratchFolder folder;
    expect_error([&] { Tokenizer::from_folder(folder.write("m.gguf", writer.bytes())); }, {"token_type", "1 to 6"});
  }
}

TEST(GgufTokenizer, GivesTheIdsOfSentencePiece) {
  const std::filesystem::path golden = test::source_dir() / "tests/golden/pipelines/pieces_bpe";
  const TokenizerFile file = read_piece_file(golden / "tokenizer.model");
  GgufVocabulary v = vocabulary_of(file);
  std::vector<float> scores(v.tokens.size());
  for (size_t i = 0; i < file.model.vocab.size(); ++i) {
    const auto id = static_cast<size_t>(file.model.vocab[i].second);
    scores[id] = static_cast<float>(file.model.scores[i]);
    const ModelForm::Piece piece = file.model.pieces[i];
    if (piece == ModelForm::Piece::user_defined) v.types[id] = 4;
    if (piece == ModelForm::Piece::unused) v.types[id] = 5;
    if (piece == ModelForm::Piece::other && v.tokens[id].starts_with("<0x")) v.types[id] = 6;
  }
  v.types[static_cast<size_t>(*file.model.unknown_id)] = 2;
  test::GgufWriter writer;
  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.tokens", v.tokens);
  writer.add("tokenizer.ggml.scores", scores);
  writer.add("tokenizer.ggml.token_type", v.types);
  const ScratchFolder folder;
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.write("m.gguf", writer.bytes()));
  const Tokenizer other = Tokenizer::from_file(golden / "tokenizer.model");
  for (const char* text : {"don't stop, now.", "a word's end", "caf\u00e9 \u4e16\u754c", "x", "two words", "12 345"})
    EXPECT_EQ(tokenizer.encode(text), other.encode(text)) << text;
  const auto ids = other.encode("it is a word's end");
  EXPECT_EQ(tokenizer.decode(ids), other.decode(ids));
}

TEST(GgufTokenizer, NamesTokensAndTemplates) {
  test::GgufWriter writer = byte_pairs("llama3", "llama-bpe");
  writer.add("tokenizer.ggml.eos_token_id", uint32_t{5});
  writer.add("tokenizer.chat_template",
             "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}");
  writer.add("tokenizer.chat_template.tool_use", "tools");
  const ScratchFolder folder;
  const std::filesystem::path file = folder.write("m.gguf", writer.bytes());
  const TokenSettings settings = read_token_settings(file);
  EXPECT_EQ(settings.named.at("eos_token"), vocabulary_of(read_tokenizer_file(golden_tokenizer("llama3"))).tokens[5]);
  EXPECT_EQ(Tokenizer::from_folder(file).end_of_text(), 5);
  EXPECT_EQ(ChatTemplate::from_folder(file).render({{"user", "hi"}}).text,
            settings.named.at("bos_token") + "hi" + settings.named.at("eos_token"));
  EXPECT_TRUE(ChatTemplates::from_folder(file).has("tool_use"));
  const auto bare = folder.write("bare.gguf", byte_pairs("gpt2", "gpt-2").bytes());
  expect_error([&] { ChatTemplate::from_folder(bare); }, {"bare.gguf", "tokenizer.chat_template"});
}

TEST(GgufTokenizer, IsRefusedByName) {
  const auto refused = [](const std::function<void(test::GgufWriter&)>& fill,
                          std::initializer_list<std::string_view> words) {
    test::GgufWriter writer;
    fill(writer);
    const ScratchFolder folder;
    const auto file = folder.write("m.gguf", writer.bytes());
    expect_error([&] { Tokenizer::from_folder(file); }, words);
  };
  const std::vector<std::string> tokens = {"a", "b"};
  refused([](auto& w) { w.add("a", true); }, {"tokenizer.ggml.tokens"});
  refused([&](auto& w) { w.add("tokenizer.ggml.tokens", tokens), w.add("tokenizer.ggml.model", "rwkv"); }, {"rwkv"});
  refused(
      [&](auto& w) {
        w.add("tokenizer.ggml.tokens", tokens), w.add("tokenizer.ggml.model", "gpt2"),
            w.add("tokenizer.ggml.pre", "odd");
      },
      {"tokenizer.ggml.pre", "odd"});
  refused(
      [&](auto& w) {
        w.add("tokenizer.ggml.tokens", tokens), w.add("tokenizer.ggml.model", "llama");
        w.add("tokenizer.ggml.scores", std::vector<float>{1});
      },
      {"tokenizer.ggml.scores", "1 elements"});
  refused(
      [&](auto& w) {
        w.add("tokenizer.ggml.tokens", tokens), w.add("tokenizer.ggml.model", "gpt2"),
            w.add("tokenizer.ggml.pre", "gpt-2");
        w.add("tokenizer.ggml.merges", std::vector<std::string>{"ab"});
      },
      {"merge 'ab'"});
  refused(
      [&](auto& w) {
        w.add("tokenizer.ggml.tokens", tokens), w.add("tokenizer.ggml.token_type", std::vector<int32_t>{1});
      },
      {"token_type"});
}

}  // namespace
}  // namespace nodewright
