// The order of the `tokenizers` library: added tokens in raw text, normalize, added tokens in normalized text, words,
// byte-pair encoding, post-processor. Loading checks what the file's parts say about each other.
#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "runtime/error.h"
#include "text/tokenizer/byte_fallback.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr std::size_t kLongestText = std::size_t{256} << 20;  // bytes; keeps positions within Oniguruma's 32-bit ints

[[noreturn]] void fail_load(const std::string& path, std::string detail) {
  throw Error({.doing = "load tokenizer",
               .object = path,
               .detail = std::move(detail),
               .advice = "check that the file is complete, or download it again"});
}

}  // namespace

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  std::error_code unused;
  if (!std::filesystem::exists(path, unused)) {
    std::string instead;
    for (const char* other : {"tokenizer.model", "vocab.json", "vocab.txt"})
      if (std::filesystem::exists(path.parent_path() / other, unused)) instead = other;
    throw Error({.doing = "load tokenizer",
                 .object = path.string(),
                 .detail = instead.empty() ? "there is no such file"
                                           : fmt::format("there is no such file, only {}, which is not read", instead),
                 .advice = "put it beside the weights; transformers writes it where it saves a fast tokenizer"});
  }
  return Tokenizer(read_tokenizer_file(path), path.string());
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
  std::vector<AddedTokens::Piece> pieces;
  raw_tokens_.append_pieces(valid, {options.parse_special, options.plain}, pieces);

  Bpe::Scratch scratch;
  std::vector<AddedTokens::Piece> inner;
  for (const auto& piece : pieces) {
    if (piece.id != kNoToken) {
      ids.push_back(piece.id);
      continue;
    }
    const std::string normal = normalizer_.apply(piece.text);
    AddedTokens::Special special{options.parse_special};
    if (!options.plain.empty()) {
      special.plain =
          options.plain.substr(static_cast<std::size_t>(piece.text.data() - valid.data()), piece.text.size());
      // Normalizing has moved what the marks stand for: then all of a piece is as plain as any part of it.
      if (normal != piece.text)
        special = {special.parse && special.plain.find_first_not_of('\0') == std::string_view::npos};
    }
    inner.clear();
    normalized_tokens_.append_pieces(normal, special, inner);
    for (const auto& part : inner) {
      if (part.id != kNoToken) {
        ids.push_back(part.id);
      } else {
        append_words(part.text, scratch, ids);
      }
    }
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

void Tokenizer::append_words(std::string_view text, Bpe::Scratch& scratch, std::vector<TokenId>& ids) const {
  pre_tokenizer_.for_each_word(text, [&](std::string_view word) { bpe_.append_ids(word, ids, scratch); });
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string text;
  TextAssembly assembly;
  for (const TokenId id : ids) append_text(id, skip_special, assembly, text);
  assembly.finish(text);
  return text;
}

void Tokenizer::append_text(TokenId id, bool skip_special, TextAssembly& assembly, std::string& text) const {
  if (!has(id)) return;
  const Token& one = token(id);
  if (skip_special && one.special) return;
  if (one.fallback_byte) {
    assembly.append_byte_of_run(one.bytes[0], text);
  } else if (decoder_.byte_level) {
    assembly.append_bytes(one.bytes, text);
  } else {
    assembly.append_text(one.bytes, text);
  }
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  const auto found = id_of_token_.find(std::string(token));
  return found == id_of_token_.end() ? std::nullopt : std::optional(found->second);
}

std::string_view Tokenizer::id_to_bytes(TokenId id) const { return token(id).bytes; }

bool Tokenizer::is_special(TokenId id) const { return token(id).special; }

const Tokenizer::Token& Tokenizer::token(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size() || !tokens_[id].exists) {
    throw Error({.doing = "decode token",
                 .object = std::to_string(id),
                 .detail = fmt::format("no token has this id; the vocabulary has {}", tokens_.size()),
                 .advice = "check that the tokenizer belongs to the model"});
  }
  return tokens_[id];
}

// Loading.

Tokenizer::Tokenizer(const TokenizerFile& file, const std::string& path)
    : normalizer_(file.normalizer),
      decoder_(file.decoder),
      pre_tokenizer_(file.pre_tokenizer, path),
      prefix_(file.prefix),
      suffix_(file.suffix) {
  load_vocab(file, path);
  load_bytes_and_unknown(file, path);
  load_added_tokens(file, path);
  load_merges(file, path);
  for (const auto* added : {&prefix_, &suffix_}) {
    for (const TokenId id : *added) {
      if (static_cast<std::size_t>(id) >= tokens_.size() || !tokens_[id].exists) {
        fail_load(path, fmt::format("the post_processor adds token {}, which does not exist", id));
      }
    }
  }
}

// What the decoder makes of a token on its own.
void Tokenizer::set_decoded(Token& token, const std::string& spelling) const {
  if (decoder_.byte_level) {
    token.bytes = decoded_bytes(spelling);
    return;
  }
  token.bytes = spelling;
  for (const auto& [from, to] : decoder_.replacements) token.bytes = replace_all(token.bytes, from, to);
  const auto byte = decoder_.byte_fallback ? byte_of_fallback_token(token.bytes) : std::nullopt;
  token.fallback_byte = byte.has_value();
  if (byte) token.bytes.assign(1, *byte);
}

// The entry of a new token; two tokens may not share an id.
Tokenizer::Token& Tokenizer::claim(TokenId id, const std::string& spelling, const std::string& path) {
  if (static_cast<std::size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
  Token& token = tokens_[id];
  if (token.exists) fail_load(path, fmt::format("token '{}' has the id {} of another token", spelling, id));
  token = {.exists = true};
  set_decoded(token, spelling);
  id_of_token_.emplace(spelling, id);
  return token;
}

// Special tokens stay out of the encoder's reach, so that no text becomes one by merging.
void Tokenizer::load_vocab(const TokenizerFile& file, const std::string& path) {
  std::set<std::string_view> special;
  for (const auto& token : file.added_tokens) {
    if (token.special) special.insert(token.content);
  }
  std::size_t bytes_with_token = 0;
  bpe_.set_ignore_merges(file.ignore_merges);
  for (const auto& [spelling, id] : file.vocab) {
    claim(id, spelling, path);
    auto bytes = file.pre_tokenizer.byte_level ? bytes_of_token(spelling) : spelling;
    if (!bytes) continue;
    if (file.pre_tokenizer.byte_level && bytes->size() == 1) {
      ++bytes_with_token;
      if (special.contains(spelling)) fail_load(path, fmt::format("special token '{}' is a single byte", spelling));
    }
    if (!special.contains(spelling)) bpe_.add_token(*std::move(bytes), id);
  }
  if (file.pre_tokenizer.byte_level && file.unknown_token && bytes_with_token < 256) {
    fail_load(path, fmt::format("unk_token is set and only {} of 256 bytes have a token, which is not supported",
                                bytes_with_token));
  }
}

void Tokenizer::load_bytes_and_unknown(const TokenizerFile& file, const std::string& path) {
  if (file.pre_tokenizer.byte_level) return;
  Bpe::Characters characters{.fuse_unknown = file.fuse_unknown};
  for (int byte = 0; byte < 256; ++byte) {
    const auto known = file.byte_fallback ? token_to_id(fallback_token_of_byte(static_cast<char>(byte))) : std::nullopt;
    characters.token_of_byte[byte] = known.value_or(kNoToken);
  }
  if (file.unknown_token) {
    const auto known = token_to_id(*file.unknown_token);
    if (!known) fail_load(path, fmt::format("unk_token '{}' is not in the vocabulary", *file.unknown_token));
    characters.unknown = *known;
  }
  bpe_.start_from_characters(characters);
}

void Tokenizer::load_added_tokens(const TokenizerFile& file, const std::string& path) {
  std::set<std::string_view> seen;
  for (const auto& token : file.added_tokens) {
    if (!seen.insert(token.content).second) fail_load(path, fmt::format("added token '{}' comes twice", token.content));
    const auto known = token_to_id(token.content);
    if (known && *known != token.id) {
      fail_load(path,
                fmt::format("added token '{}' has id {}, but {} in the vocabulary", token.content, token.id, *known));
    }
    Token& entry = known ? tokens_[token.id] : claim(token.id, token.content, path);
    entry.special = token.special;
    if (token.normalized) set_decoded(entry, normalizer_.apply(token.content));  // as tokenizers 0.23 decodes it
  }
  for (const bool special : {true, false}) {  // of two that look alike once normalized, the oracle takes a special one
    for (const auto& token : file.added_tokens) {
      if (token.special != special) continue;
      if (token.normalized) {
        normalized_tokens_.add(token, normalizer_.apply(token.content), path);
      } else {
        raw_tokens_.add(token, token.content, path);
      }
    }
  }
}

void Tokenizer::load_merges(const TokenizerFile& file, const std::string& path) {
  const auto known = [&](const std::string& spelling, const auto& merge) {
    const auto found = token_to_id(spelling);
    if (!found) {
      fail_load(path, fmt::format("merge '{} {}' needs token '{}', which is not in the vocabulary", merge.first,
                                  merge.second, spelling));
    }
    return *found;
  };
  for (const auto& merge : file.merges) {
    const TokenId left = known(merge.first, merge);
    const TokenId right = known(merge.second, merge);
    const TokenId merged = known(merge.first + merge.second, merge);
    if (!tokens_[merged].special) bpe_.add_merge(left, right, merged);
  }
}

}  // namespace nodewright
