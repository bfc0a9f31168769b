// What a tokenizer.json says, as plain data, after every component and flag in it was found to be supported.
// The only place of the tokenizer that knows JSON.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/added_tokens.h"
#include "engine/bpe.h"
#include "engine/pre_tokenizer.h"

namespace nodewright {

struct TokenizerFile {
  bool nfc = false;
  PreTokenizerForm pre_tokenizer;
  bool ignore_merges = false;
  bool has_unknown_token = false;  // allowed only where every byte has a token, so that it never appears
  std::vector<std::pair<std::string, TokenId>> vocab;       // spelled in the byte alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // [rank]
  std::vector<AddedToken> added_tokens;                     // in file order
  std::vector<TokenId> prefix, suffix;                      // what the post-processor puts around a text
};

// Reads a Hugging Face tokenizer.json of the byte-level BPE kind.
// Throws Error naming the file and the thing: unreadable, not JSON, a field that is missing or of the wrong type, a
// component or flag that is not supported (by its name). Ids are checked one by one (0 to 4,194,303), not against
// each other.
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);

}  // namespace nodewright
