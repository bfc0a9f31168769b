// Keys and defaults: llama.cpp, src/llama-vocab.cpp; pre-tokenizers: the tokenizer.json files that its names stand for.
#include "text/tokenizer/files/gguf_tokenizer.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/gguf_file.h"
#include "base/json_file.h"
#include "runtime/error.h"
#include "text/tokenizer/files/components.h"
#include "text/tokenizer/files/piece_vocabulary.h"
#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/files/tokenizer_json.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using StepJson = nlohmann::json;

constexpr std::string_view kOf = "tokenizer.ggml.";

constexpr const char* kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// By the name under tokenizer.ggml.pre.
struct GgufPreTokenizer {
  std::string_view name;
  const char* words;            // a pattern
  bool splits_digits = false;   // each digit is a word of its own
  bool ignores_merges = false;  // a word that is a token stays whole
  bool composes = false;        // NFC before
  bool adds_bos = false;        // where no key says so
};
constexpr GgufPreTokenizer kPreTokenizers[] = {{"llama-bpe", kLlama3Words, false, true, false, true},
                                               {"llama3", kLlama3Words, false, true, false, true},
                                               {"llama-v3", kLlama3Words, false, true, false, true},
                                               {"smaug-bpe", kLlama3Words},
                                               {"dbrx", kLlama3Words},
                                               {"qwen2", kQwen2Words, false, false, true},
                                               {"gpt-2", kGpt2Words},
                                               {"olmo", kGpt2Words},
                                               {"phi-2", kGpt2Words},
                                               {"smollm", kGpt2Words, true},
                                               {"starcoder", kGpt2Words, true},
                                               {"refact", kGpt2Words, true}};

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufModel& model) : model_(model), reader_(model.path().string()) {
    const std::vector<std::string>* tokens = model.texts(key("tokens"));
    if (tokens == nullptr || tokens->empty())
      reader_.fail("it holds no tokenizer: key 'tokenizer.ggml.tokens' is missing");
    if (static_cast<std::int64_t>(tokens->size()) > kLargestTokenId)
      reader_.fail(fmt::format("it has {} tokens, at most {} are read", tokens->size(), kLargestTokenId + 1));
    tokens_ = tokens;
    if (const std::vector<double>* types = model.numbers(key("token_type"))) {
      check_length(*types, "token_type");
      for (const double type : *types) {
        if (!(type >= 0 && type <= static_cast<double>(PieceType::byte)) || type != std::trunc(type))
          reader_.fail(fmt::format("key 'tokenizer.ggml.token_type' has {}, expected numbers from 1 to 6", type));
        types_.push_back(static_cast<PieceType>(type));
      }
    } else {
      types_.assign(tokens->size(), PieceType::normal);
    }
  }

  TokenizerFile read() {
    const std::string kind = model_.text(key("model")).value_or("");
    if (kind == "llama")
      read_pieces();
    else if (kind == "gpt2")
      read_byte_pairs();
    else
      reader_.refuse(fmt::format("'tokenizer.ggml.model' {}, neither llama nor gpt2,", in_quotes(kind)));
    const auto around = [&](const char* add, const char* id, bool otherwise, std::vector<TokenId>& to) {
      if (!model_.boolean(key(add)).value_or(otherwise)) return;
      if (const auto found = token_id(id)) to = {*found};
    };
    around("add_bos_token", "bos_token_id", adds_bos_, out_.prefix);
    around("add_eos_token", "eos_token_id", false, out_.suffix);
    return std::move(out_);
  }

  std::optional<TokenId> token_id(const char* name) const {
    const auto id = model_.integer(key(name));
    if (!id || *id < 0 || *id >= static_cast<std::int64_t>(tokens_->size())) return std::nullopt;
    return static_cast<TokenId>(*id);
  }
  const std::string& token(TokenId id) const { return (*tokens_)[static_cast<std::size_t>(id)]; }

 private:
  static std::string key(const char* name) { return std::string(kOf) + name; }

  void check_length(const std::vector<double>& numbers, const char* name) const {
    if (numbers.size() != tokens_->size())
      reader_.fail(fmt::format("key 'tokenizer.ggml.{}' has {} elements, expected one for each of {} tokens", name,
                               numbers.size(), tokens_->size()));
  }

  // SentencePiece's BPE.
  void read_pieces() {
    adds_bos_ = true;
    ModelForm& form = out_.model;
    form.kind = ModelForm::Kind::piece_merges;
    form.byte_fallback = true;
    form.unknown_id = token_id("unknown_token_id");
    const std::vector<double>* scores = model_.numbers(key("scores"));
    if (scores == nullptr) reader_.fail("key 'tokenizer.ggml.scores' is missing");
    check_length(*scores, "scores");
    PieceVocabulary pieces(reader_, out_);
    for (std::size_t i = 0; i < tokens_->size(); ++i) pieces.add(to_valid_utf8((*tokens_)[i]), (*scores)[i], types_[i]);
    PieceText text;
    text.add_prefix = model_.boolean(key("add_space_prefix")).value_or(true);
    text.remove_extra_spaces = model_.boolean(key("remove_extra_whitespaces")).value_or(false);
    pieces.finish(std::move(text));
  }

  void read_byte_pairs() {
    const std::string name = model_.text(key("pre")).value_or("default");
    const GgufPreTokenizer* found = nullptr;
    for (const GgufPreTokenizer& one : kPreTokenizers)
      if (one.name == name) found = &one;
    if (found == nullptr) reader_.refuse(fmt::format("'tokenizer.ggml.pre' {}", in_quotes(name)));
    adds_bos_ = found->adds_bos;
    StepJson steps = StepJson::array();
    if (found->splits_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", found->words}}}, {"behavior", "Isolated"}, {"invert", false}});
    steps.push_back(
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}});
    out_.pre_tokenizer = read_pre_tokenizer(reader_, {{"type", "Sequence"}, {"pretokenizers", steps}});
    out_.normalizer = read_normalizer(reader_, found->composes ? StepJson{{"type", "NFC"}} : StepJson());
    out_.decoder = read_decoder(
        reader_, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}});
    out_.model.ignore_merges = found->ignores_merges;
    for (std::size_t i = 0; i < tokens_->size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const bool special = types_[i] == PieceType::control || types_[i] == PieceType::unknown;
      if (special || types_[i] == PieceType::user_defined)
        out_.added_tokens.push_back({.id = id, .content = to_valid_utf8((*tokens_)[i]), .special = special});
      else if (types_[i] != PieceType::unused)  // padding of the vocabulary
        out_.model.vocab.emplace_back((*tokens_)[i], id);
    }
    const std::vector<std::string>* merges = model_.texts(key("merges"));
    if (merges == nullptr) reader_.fail("key 'tokenizer.ggml.merges' is missing");
    for (const std::string& merge : *merges) {
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size())
        reader_.fail(fmt::format("merge {} is no pair", in_quotes(merge)));
      out_.model.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
  }

  const GgufModel& model_;
  SectionReader reader_;
  const std::vector<std::string>* tokens_;
  std::vector<PieceType> types_;  // [token]
  bool adds_bos_ = false;         // where no key says so
  TokenizerFile out_;
};

}  // namespace

TokenizerFile read_gguf_tokenizer(const std::filesystem::path& path) {
  const GgufModel model = GgufModel::open(path);
  return GgufTokenizerReader(model).read();
}

TokenSettings read_gguf_token_settings(const std::filesystem::path& path) {
  const GgufModel model = GgufModel::open(path);
  TokenSettings settings;
  if (model.texts("tokenizer.ggml.tokens") == nullptr) return settings;
  const GgufTokenizerReader reader(model);
  for (const auto& [name, key] :
       {std::pair{"bos_token", "bos_token_id"}, std::pair{"eos_token", "eos_token_id"},
        std::pair{"unk_token", "unknown_token_id"}, std::pair{"pad_token", "padding_token_id"}})
    if (const auto id = reader.token_id(key)) settings.named[name] = to_valid_utf8(reader.token(*id));
  return settings;
}

std::map<std::string, std::string> read_gguf_templates(const std::filesystem::path& path) {
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  const GgufModel model = GgufModel::open(path, kGgufTokenizer);
  std::map<std::string, std::string> templates;
  for (const auto& [key, value] : model.metadata()) {
    const auto* source = std::get_if<std::string>(&value);
    if (source == nullptr || !key.starts_with(kTemplate)) continue;
    const std::string_view rest = std::string_view(key).substr(kTemplate.size());
    if (rest.empty())
      templates["default"] = *source;
    else if (rest.starts_with("."))
      templates[std::string(rest.substr(1))] = *source;
  }
  return templates;
}

}  // namespace nodewright
