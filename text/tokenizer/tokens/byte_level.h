// The byte alphabet of GPT-2: how tokenizer.json writes a token of arbitrary bytes as printable text ("Ġthe" is
// " the"). Inside the engine tokens are raw bytes; this alphabet appears where the file is read, and nowhere else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nodewright {

// The raw bytes of a token spelled in the byte alphabet, or nothing if one of its characters is not a letter of it
// (such a token can only be an added token, and stands for its own UTF-8 bytes).
// Source: bytes_to_unicode() in OpenAI's gpt-2/src/encoder.py.
std::optional<std::string> bytes_of_token(std::string_view token);

// The spelling of raw bytes in the byte alphabet: the inverse of bytes_of_token.
std::string token_of_bytes(std::string_view bytes);

// What a token adds to the decoded text: its bytes_of_token, or its own UTF-8 where it has none.
std::string decoded_bytes(std::string_view token);

}  // namespace nodewright
