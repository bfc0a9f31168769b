// What a tokenizer.json says, as plain data, after every component and flag in it was found to be supported.
// The only place of the tokenizer that knows JSON.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace nodewright {

// The component "decoder": how the spellings of tokens become text.
struct DecoderForm {
  bool byte_level = false;                // in the byte alphabet; else the spellings are text
  std::vector<Replacement> replacements;  // in each token, one after the other
  bool byte_fallback = false;             // tokens <0x00> to <0xFF> are bytes
};

struct TokenizerFile {
  Normalizer normalizer;
  PreTokenizerForm pre_tokenizer;
  bool ignore_merges = false;
  bool byte_fallback = false, fuse_unknown = false;
  std::optional<std::string> unknown_token;  // at the byte level only where every byte has a token: it never appears
  DecoderForm decoder;
  std::vector<std::pair<std::string, TokenId>> vocab;       // spelled in the byte alphabet if pre_tokenizer.byte_level
  std::vector<std::pair<std::string, std::string>> merges;  // [rank]
  std::vector<AddedToken> added_tokens;                     // in file order
  std::vector<TokenId> prefix, suffix;                      // what the post-processor puts around a text
};

// Reads a Hugging Face tokenizer.json of the BPE kind, at the byte level or with characters and byte fallback.
// Throws Error naming the file and the thing: unreadable, not JSON, a field that is missing or of the wrong type, a
// component or flag that is not supported (by its name). Ids are checked one by one (0 to 4,194,303), not against
// each other.
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);

}  // namespace nodewright
