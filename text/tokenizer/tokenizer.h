// Text to token ids and back, as the `tokenizers` library does it for a BPE tokenizer.json: byte level (Llama-3, Qwen2,
// Qwen3, GPT-2) or characters with byte fallback (Gemma). Chat templates and the choice of BOS and EOS belong
// elsewhere; text as it streams: text_stream.h.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/text_assembly.h"
#include "text/tokenizer/tokenizer_file.h"

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
  // Loads a tokenizer.json. Throws Error naming the file and the thing at fault: unreadable, not JSON, a component or
  // flag that is not supported (by name), two tokens with one id, a merge of unknown tokens, an expression that does
  // not compile.
  static Tokenizer from_file(const std::filesystem::path& path);

  // The ids of `text`, which may hold any bytes: invalid UTF-8 is read as U+FFFD, one for each maximal ill-formed
  // subpart, as Python's bytes.decode('utf-8', errors='replace') does.
  // Throws Error if the text is longer than 256 MiB, or so unusual that a regular expression gives up, or if `plain`
  // has another length.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of `ids`, always valid UTF-8: the bytes of all tokens joined as TextAssembly does it. skip_special leaves
  // special tokens out.
  // An id without a token adds nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  // One more than the largest id. A model may have more columns than that (they are padding).
  std::size_t vocab_size() const { return tokens_.size(); }

  // The id of a token spelled as in the file: "Ġthe", "<|eot_id|>".
  std::optional<TokenId> token_to_id(std::string_view token) const;

  // The bytes that this token adds to the text, which may be part of a character only: " the", "\xE2\x82".
  // Throws Error naming the id and the vocabulary's size if no token has it. The view lives as long as the tokenizer.
  std::string_view id_to_bytes(TokenId id) const;

  // Appends to `text` what this token settles; the rest waits in `assembly`. An id without a token, such as those of a
  // vocabulary's padding, adds nothing.
  void append_text(TokenId id, bool skip_special, TextAssembly& assembly, std::string& text) const;

  // Whether a token has this id.
  bool has(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < tokens_.size() && tokens_[static_cast<std::size_t>(id)].exists;
  }

  // Whether this is a special token. Throws like id_to_bytes.
  bool is_special(TokenId id) const;

 private:
  struct Token {
    std::string bytes;
    bool exists = false;
    bool special = false;
    bool fallback_byte = false;  // spelled <0x0A>, decoded as this byte
  };

  Tokenizer(const TokenizerFile& file, const std::string& path);
  void set_decoded(Token& token, const std::string& spelling) const;
  Token& claim(TokenId id, const std::string& spelling, const std::string& path);
  void load_bytes_and_unknown(const TokenizerFile& file, const std::string& path);
  void load_vocab(const TokenizerFile& file, const std::string& path);
  void load_merges(const TokenizerFile& file, const std::string& path);
  void load_added_tokens(const TokenizerFile& file, const std::string& path);
  const Token& token(TokenId id) const;
  void append_words(std::string_view text, Bpe::Scratch& scratch, std::vector<TokenId>& ids) const;

  std::vector<Token> tokens_;                             // [id]
  std::unordered_map<std::string, TokenId> id_of_token_;  // by spelling
  AddedTokens raw_tokens_;                                // looked for in the text as it came
  AddedTokens normalized_tokens_;                         // looked for after normalizing
  Normalizer normalizer_;
  DecoderForm decoder_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  std::vector<TokenId> prefix_, suffix_;
};

}  // namespace nodewright
