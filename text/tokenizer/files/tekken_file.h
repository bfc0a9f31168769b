// A tekken.json: Mistral's vocabulary of bytes with tiktoken's merging, by rank.
#pragma once

#include <filesystem>

#include "text/tokenizer/files/tokenizer_file.h"

namespace nodewright {

// Source: mistral_common/tokens/tokenizers/tekken.py. Throws Error naming the file and the thing: unreadable, not JSON,
// a field that is missing or of the wrong type, a rank out of order, a byte without a token.
TokenizerFile read_tekken_file(const std::filesystem::path& path);

}  // namespace nodewright
