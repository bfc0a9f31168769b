// How tokenizer.json writes a token that stands for one byte of a character without a token: "<0x0A>".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nodewright {

// The spelling that an encoder looks up: two capital digits.
std::string fallback_token_of_byte(char byte);

// The byte of a token that a decoder takes for one, or nothing. More than the inverse: small digits count, too, and so
// does a plus sign for the first.
// Source: decoders/byte_fallback.rs of the `tokenizers` library (Rust's u8::from_str_radix).
std::optional<char> byte_of_fallback_token(std::string_view token);

}  // namespace nodewright
