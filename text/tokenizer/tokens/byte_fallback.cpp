#include "text/tokenizer/tokens/byte_fallback.h"

#include <fmt/format.h>

#include <charconv>

namespace nodewright {

std::string fallback_token_of_byte(char byte) { return fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)); }

std::optional<char> byte_of_fallback_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  unsigned char byte = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace nodewright
