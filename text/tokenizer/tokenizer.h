// Text to token ids and back, as the `tokenizers` library does it for a tokenizer.json, SentencePiece for a
// tokenizer.model and mistral-common for a tekken.json. Chat templates and the choice of BOS and EOS belong elsewhere;
// text as it streams: text_stream.h.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/files/token_settings.h"
#include "text/tokenizer/files/tokenizer_file.h"
#include "text/tokenizer/models/word_model.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/steps/pre_tokenizer.h"
#include "text/tokenizer/steps/token_decoder.h"
#include "text/tokenizer/tokens/added_tokens.h"
#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

struct EncodeOptions {
  // false: the text is the user's, and whatever it spells, no special token comes out of it (added tokens that are not
  // special do). true: special tokens in the text are taken as such, as a chat template's output needs it; this is what
  // `tokenizers` does by default.
  bool parse_special = false;
  // Where parse_special does not count: as long as the text, with a byte other than 0 for each byte of it that is the
  // user's and not the template's. Empty: it counts everywhere. The text must then be valid UTF-8.
  std::string_view plain;
  // Puts around the text what the file's post-processor says, such as Llama-3's <|begin_of_text|>. A chat template
  // writes that itself: do not add it twice.
  bool add_special_tokens = false;
};

// Immutable after loading: every method may be called from many threads at once.
class Tokenizer {
 public:
  // Loads a tokenizer.json, tokenizer.model or tekken.json; the name's end tells which. What the files beside it say of
  // tokens (text/tokenizer/files/token_settings.h) counts, too. Throws Error naming the file
  // and the thing at fault: unreadable, not in its format, a component or flag that is not supported (by name), two
  // tokens with one id, a merge of unknown tokens, an expression that does not compile.
  static Tokenizer from_file(const std::filesystem::path& path);

  // The file that a checkpoint's folder has: tokenizer.json, else tokenizer.model, else tekken.json, else nothing.
  static std::optional<std::filesystem::path> file_in(const std::filesystem::path& folder);

  // Loads that file. Throws Error like from_file, and if there is none.
  static Tokenizer from_folder(const std::filesystem::path& folder);

  // The ids of `text`, which may hold any bytes: invalid UTF-8 is read as U+FFFD, one for each maximal ill-formed
  // subpart, as Python's bytes.decode('utf-8', errors='replace') does.
  // Throws Error if the text is longer than 256 MiB, or so unusual that a regular expression gives up, or if `plain`
  // has another length.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of `ids`, always valid UTF-8: what the decoder makes of all of them. skip_special leaves special tokens
  // out. An id without a token adds nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true,
                     TextStart start = TextStart::new_text) const;

  // The bytes of the longest text that may become so few tokens; none where a token may stand for a text of any length,
  // as unknown words and white space beside some special tokens do.
  std::optional<std::size_t> longest_text(std::size_t tokens) const;

  // One more than the largest id. A model may have more columns than that (they are padding).
  std::size_t vocab_size() const { return tokens_.size(); }

  // The id of a token spelled as in the file: "Ġthe", "<|eot_id|>".
  std::optional<TokenId> token_to_id(std::string_view token) const;

  // The bytes that this token adds to a text that goes before it, which may be part of a character only: " the",
  // "\xE2\x82".
  // Throws Error naming the id and the vocabulary's size if no token has it. The view lives as long as the tokenizer.
  std::string_view id_to_bytes(TokenId id) const;

  // Appends to `text` what this token settles; the rest waits in `place`. An id without a token, such as those of a
  // vocabulary's padding, adds nothing.
  void append_text(TokenId id, bool skip_special, TokenDecoder::Place& place, std::string& text) const;

  // How the file says that tokens become text.
  const TokenDecoder& decoder() const { return decoder_; }

  // Whether a token has this id.
  bool has(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < tokens_.size() && tokens_[static_cast<std::size_t>(id)].exists;
  }

  // The token that ends a text by tokenizer_config.json or special_tokens_map.json, if they name one that there is.
  std::optional<TokenId> end_of_text() const { return end_of_text_; }

  // Whether this is a special token. Throws like id_to_bytes.
  bool is_special(TokenId id) const;

 private:
  struct Token {
    TokenDecoder::Decoded decoded;
    std::string spelling;  // where the decoder looks around
    bool exists = false;
    bool special = false;
  };

  // The pieces and words of one text. One per thread.
  struct Scratch {
    PreTokenizer::Scratch words;
    WordModel::Scratch model;
    std::vector<AddedTokens::Piece> inner;
  };

  Tokenizer(TokenizerFile file, const std::string& path);
  void find_end(const TokenSettings& settings);
  void set_decoded(Token& token, const std::string& spelling) const;
  Token& claim(TokenId id, const std::string& spelling, const std::string& path);
  WordModel load_model(const TokenizerFile& file, const std::string& path);
  std::optional<std::size_t> most_bytes_of_a_token(const TokenizerFile& file) const;
  void load_added_tokens(const TokenizerFile& file, const std::string& path);
  const Token& token(TokenId id) const;
  void set_barriers(MarkedText& text) const;
  void append_piece(std::string_view text, bool at_start, AddedTokens::Special special, Scratch& scratch,
                    std::vector<TokenId>& ids) const;

  std::vector<Token> tokens_;      // [id]
  TokenMap id_of_token_;           // by spelling
  AddedTokens raw_tokens_;         // looked for in the text as it came
  AddedTokens normalized_tokens_;  // looked for after normalizing
  AddedTokens guarded_tokens_;     // special ones of those, as they stand in the text before and after
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenDecoder decoder_;
  WordModel model_;
  std::vector<TokenId> prefix_, suffix_;
  std::optional<TokenId> end_of_text_;
  std::optional<std::size_t> most_bytes_;  // of a text that becomes one token
};

}  // namespace nodewright
