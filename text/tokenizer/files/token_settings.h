// What the files beside a tokenizer's say of its tokens: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json of a checkpoint folder, as transformers writes them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "text/tokenizer/files/tokenizer_file.h"
#include "text/tokenizer/tokens/added_tokens.h"

namespace nodewright {

struct TokenSettings {
  std::vector<AddedToken> decoder;  // "added_tokens_decoder" of tokenizer_config.json, by id
  std::vector<AddedToken> added;    // of added_tokens.json, by spelling: ids alone
  // By the name that templates know it by: "bos_token", "eos_token", and whatever else ends in "_token".
  std::map<std::string, std::string> named;
  // "additional_special_tokens" and "extra_special_tokens", in this order.
  std::vector<std::string> more;
  // All of the named ones and those of `more`, with the flags that stand beside them; they have no id.
  std::vector<AddedToken> special;
};

// Reads those files that exist. A name in several of them gets the token that transformers uses:
// special_tokens_map.json counts where tokenizer_config.json has no "added_tokens_decoder", and where that names no
// such token. Throws Error naming the file and the thing: not JSON, an id that is none, a token that is neither text
// nor an object with "content".
TokenSettings read_token_settings(const std::filesystem::path& folder);

// Joins them with what the tokenizer's own file says: tokens that only they have, flags of those that both have (theirs
// count), and which are special. A token that the vocabulary has keeps its id there. Throws Error naming `path` and the
// token whose id another one has.
void add_settings(const TokenSettings& settings, const std::filesystem::path& path, TokenizerFile& file);

}  // namespace nodewright
