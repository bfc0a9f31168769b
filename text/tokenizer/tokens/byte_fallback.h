// How tokenizer.json writes a token that stands for one byte of a character without a token: "<0x0A>".
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

// [byte]: its token, kNoToken where there is none.
using ByteTokens = std::array<TokenId, 256>;

// No byte has a token.
constexpr ByteTokens no_byte_tokens() {
  ByteTokens none{};
  none.fill(kNoToken);
  return none;
}

// The spelling that an encoder looks up: two capital digits.
std::string fallback_token_of_byte(char byte);

// The byte of a token that a decoder takes for one, or nothing. More than the inverse: small digits count, too, and so
// does a plus sign for the first.
// Source: decoders/byte_fallback.rs of the `tokenizers` library (Rust's u8::from_str_radix).
std::optional<char> byte_of_fallback_token(std::string_view token);

}  // namespace nodewright
