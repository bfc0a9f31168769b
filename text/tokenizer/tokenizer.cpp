// The order of the `tokenizers` library: added tokens in raw text, normalize, added tokens in normalized text, words,
// model, post-processor. Loading checks what the file's parts say about each other.
#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_file.h"
#include "base/work_budget.h"
#include "runtime/error.h"
#include "text/tokenizer/files/gguf_tokenizer.h"
#include "text/tokenizer/files/piece_file.h"
#include "text/tokenizer/files/tekken_file.h"
#include "text/tokenizer/load_error.h"
#include "text/tokenizer/tokens/byte_level.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr std::size_t kLongestText = std::size_t{256} << 20;  // bytes; keeps positions within Oniguruma's 32-bit ints
constexpr std::uint64_t kWorkOfByte = 16;  // units: 60 ns for a word of one byte to a heap of merges of a long one

}  // namespace

std::optional<std::filesystem::path> Tokenizer::file_in(const std::filesystem::path& folder) {
  if (is_gguf(folder)) return folder;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json"})
    if (is_present(folder / name)) return folder / name;
  return std::nullopt;
}

Tokenizer Tokenizer::from_folder(const std::filesystem::path& folder) {
  return from_file(file_in(folder).value_or(folder / "tokenizer.json"));
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  if (!is_present(path)) {
    std::string instead;
    for (const char* other : {"vocab.json", "vocab.txt"})
      if (is_present(path.parent_path() / other)) instead = other;
    fail_load(path.string(),
              instead.empty() ? "there is no such file"
                              : fmt::format("there is no such file, only {}, which is not read", instead),
              "put it beside the weights; transformers writes it where it saves a fast tokenizer");
  }
  const bool gguf = is_gguf(path);
  const TokenSettings settings = read_token_settings(gguf ? path : path.parent_path());
  const bool of_pieces = path.extension() == ".model";  // whose reader adds the settings itself
  TokenizerFile file = gguf                                             ? read_gguf_tokenizer(path)
                       : of_pieces                                      ? read_piece_file(path)
                       : path.filename().string().starts_with("tekken") ? read_tekken_file(path)
                                                                        : read_tokenizer_file(path);
  if (!of_pieces) add_settings(settings, path, file);
  Tokenizer tokenizer(std::move(file), path.string());
  tokenizer.find_end(settings);
  return tokenizer;
}

// By its spelling, or as the text that one token stands for.
void Tokenizer::find_end(const TokenSettings& settings) {
  const auto named = settings.named.find("eos_token");
  if (named == settings.named.end() || named->second.empty()) return;
  end_of_text_ = token_to_id(named->second);
  if (end_of_text_) return;
  if (const auto ids = encode(named->second, {.parse_special = true}); ids.size() == 1) end_of_text_ = ids.front();
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kLongestText) {
    throw Error({.doing = "tokenize text",
                 .detail = fmt::format("it has {} bytes, the limit is {}", text.size(), kLongestText),
                 .advice = "send a shorter text"});
  }
  std::vector<TokenId> ids;
  if (options.add_special_tokens) ids = prefix_;

  const std::string valid = to_valid_utf8(text);
  if (!options.plain.empty() && options.plain.size() != valid.size()) {
    throw Error({.doing = "tokenize text",
                 .detail = fmt::format("{} bytes of it are marked, {} are there", options.plain.size(), valid.size())});
  }
  std::string marks(options.plain);
  for (char& mark : marks) mark = mark == '\0' ? '\0' : kUsersByte;
  std::vector<AddedTokens::Piece> pieces;
  raw_tokens_.append_pieces(valid, {options.parse_special, marks}, pieces);

  Scratch scratch;
  for (const auto& piece : pieces) {
    if (piece.id != kNoToken) {
      ids.push_back(piece.id);
      continue;
    }
    const auto begin = static_cast<std::size_t>(piece.text.data() - valid.data());
    const std::string_view own = marks.empty() ? "" : std::string_view(marks).substr(begin, piece.text.size());
    append_piece(piece.text, begin == 0, {options.parse_special, own}, scratch, ids);
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

// `text` lies between two added tokens of the raw text.
void Tokenizer::append_piece(std::string_view text, bool at_start, AddedTokens::Special special, Scratch& scratch,
                             std::vector<TokenId>& ids) const {
  MarkedText marked{std::string(text), {}};
  if (special.parse && normalized_tokens_.has_special()) marked.marks = special.marks;
  if (marked.is_marked()) set_barriers(marked);
  const MarkedText normalized = normalizer_.apply(std::move(marked), at_start);
  const std::string& normal = normalized.text;
  scratch.inner.clear();
  normalized_tokens_.append_pieces(normal, {special.parse, normalized.marks}, scratch.inner);
  for (const auto& part : scratch.inner) {
    if (part.id != kNoToken) {
      ids.push_back(part.id);
      continue;
    }
    pre_tokenizer_.for_each_word(part.text, at_start && part.text.data() == normal.data(), scratch.words,
                                 [&](std::string_view word) {
                                   WorkBudget::spend(kWorkOfByte * word.size());
                                   model_.append_ids(word, ids, scratch.model);
                                 });
  }
}

// What the user writes beside a special token of the template changes nothing of it.
void Tokenizer::set_barriers(MarkedText& text) const {
  for (const auto& [begin, end] : guarded_tokens_.specials_of_template(text.text, text.marks)) {
    if (begin > 0 && (text.marks[begin - 1] & kUsersByte) != 0) text.marks[begin] |= kBarrier;
    if (end < text.marks.size() && (text.marks[end] & kUsersByte) != 0) text.marks[end] |= kBarrier;
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special, TextStart start) const {
  std::string text;
  TokenDecoder::Place place = start == TextStart::behind_prompt ? decoder_.middle() : TokenDecoder::Place();
  for (const TokenId id : ids) append_text(id, skip_special, place, text);
  decoder_.finish(place, text);
  return text;
}

void Tokenizer::append_text(TokenId id, bool skip_special, TokenDecoder::Place& place, std::string& text) const {
  if (!has(id)) return;
  const Token& one = token(id);
  if (skip_special && one.special) return;
  decoder_.append(one.decoded, one.spelling, place, text);
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const { return id_of_token_.find(token); }

std::string_view Tokenizer::id_to_bytes(TokenId id) const { return token(id).decoded.bytes; }

bool Tokenizer::is_special(TokenId id) const { return token(id).special; }

const Tokenizer::Token& Tokenizer::token(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size() || !tokens_[id].exists) {
    throw Error({.doing = "decode token",
                 .object = std::to_string(id),
                 .detail = fmt::format("no token has this id; the vocabulary has {} ids", tokens_.size()),
                 .advice = "check that the tokenizer belongs to the model"});
  }
  return tokens_[id];
}

// Loading.

Tokenizer::Tokenizer(TokenizerFile file, const std::string& path)
    : normalizer_(std::move(file.normalizer)),
      pre_tokenizer_(std::move(file.pre_tokenizer)),
      decoder_(std::move(file.decoder)),
      model_(load_model(file, path)),
      prefix_(std::move(file.prefix)),
      suffix_(std::move(file.suffix)) {
  load_added_tokens(file, path);
  most_bytes_ = most_bytes_of_a_token(file);
  for (const auto* added : {&prefix_, &suffix_}) {
    for (const TokenId id : *added)
      if (!has(id)) fail_load(path, fmt::format("the post_processor adds token {}, which does not exist", id));
  }
}

// What the decoder makes of a token on its own.
void Tokenizer::set_decoded(Token& token, const std::string& spelling) const {
  token.decoded = decoder_.decoded(spelling);
  if (decoder_.looks_around()) token.spelling = spelling;
}

// None where a byte of a text may vanish, or any number of them may become one token.
std::optional<std::size_t> Tokenizer::most_bytes_of_a_token(const TokenizerFile& file) const {
  const std::optional<std::size_t> shrinks = normalizer_.shrinks();
  const auto has_every_byte = [this](const auto& spelled) {
    for (int byte = 0; byte < 256; ++byte)
      if (!id_of_token_.find(spelled(byte))) return false;
    return true;
  };
  const bool keeps_bytes =
      file.model.kind == ModelForm::Kind::bpe &&
      (pre_tokenizer_.ends_in_bytes() && takes_raw_bytes(file.model)
           ? has_every_byte([](int byte) { return token_of_bytes(std::string(1, static_cast<char>(byte))); })
           : file.model.byte_fallback && has_every_byte([](int byte) { return fmt::format("<0x{:02X}>", byte); }));
  const bool strips = std::ranges::any_of(file.added_tokens, [](const AddedToken& t) { return t.lstrip || t.rstrip; });
  if (!shrinks || !keeps_bytes || strips || pre_tokenizer_.drops_text()) return std::nullopt;
  std::size_t most = 1;
  for (const Token& token : tokens_) most = std::max(most, token.decoded.bytes.size());
  for (const AddedToken& token : file.added_tokens) most = std::max(most, token.content.size());
  return most * *shrinks;
}

std::optional<std::size_t> Tokenizer::longest_text(std::size_t tokens) const {
  return most_bytes_ ? std::optional(*most_bytes_ * tokens) : std::nullopt;
}

// The entry of a new token; two tokens may not share an id.
Tokenizer::Token& Tokenizer::claim(TokenId id, const std::string& spelling, const std::string& path) {
  if (static_cast<std::size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
  Token& token = tokens_[static_cast<std::size_t>(id)];
  if (token.exists) fail_load(path, fmt::format("token {} has the id {} of another token", in_quotes(spelling), id));
  token.exists = true;
  set_decoded(token, spelling);
  id_of_token_.insert(spelling, id);
  return token;
}

WordModel Tokenizer::load_model(const TokenizerFile& file, const std::string& path) {
  std::unordered_set<std::string_view> special;
  for (const auto& token : file.added_tokens)
    if (token.special) special.insert(token.content);
  id_of_token_.reserve(file.model.vocab.size());
  tokens_.reserve(file.model.vocab.size());
  for (const auto& [spelling, id] : file.model.vocab) claim(id, spelling, path);
  const bool raw = pre_tokenizer_.ends_in_bytes() && takes_raw_bytes(file.model);
  pre_tokenizer_.set_raw_bytes(raw);
  return WordModel(file.model, {id_of_token_, special, raw}, path);
}

void Tokenizer::load_added_tokens(const TokenizerFile& file, const std::string& path) {
  std::unordered_map<std::string_view, const AddedToken*> seen;
  for (const auto& token : file.added_tokens) {
    const std::string name = in_quotes(token.content);
    if (const auto [first, is_new] = seen.emplace(token.content, &token); !is_new) {
      if (*first->second == token) continue;
      fail_load(path, fmt::format("added token {} appears twice, with another id or other flags", name));
    }
    const auto known = token_to_id(token.content);
    if (known && *known != token.id)
      fail_load(path, fmt::format("added token {} has id {}, but {} in the vocabulary", name, token.id, *known));
    Token& entry = known ? tokens_[static_cast<std::size_t>(token.id)] : claim(token.id, token.content, path);
    entry.special = token.special;
    if (token.normalized) set_decoded(entry, normalizer_.apply(token.content));  // as tokenizers 0.23 decodes it
  }
  std::vector<AddedTokens::Spelled> raw, normalized, guarded;
  for (const bool special : {true, false}) {  // of two that look alike once normalized, the oracle takes a special one
    for (const auto& token : file.added_tokens) {
      if (token.special != special) continue;
      if (token.normalized) {
        normalized.emplace_back(normalizer_.apply(token.content), token);
        if (!special) continue;
        AddedToken anywhere = token;
        anywhere.single_word = false;
        guarded.emplace_back(token.content, anywhere);
        guarded.emplace_back(normalized.back().first, anywhere);
      } else {
        raw.emplace_back(token.content, token);
      }
    }
  }
  raw_tokens_ = AddedTokens(std::move(raw));
  normalized_tokens_ = AddedTokens(std::move(normalized));
  guarded_tokens_ = AddedTokens(std::move(guarded));
}

}  // namespace nodewright
