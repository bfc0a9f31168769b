// Bytes that print (33..126, 161..172, 174..255) stand for themselves; the other 68 take U+0100 onwards, in order.
#include "text/tokenizer/tokens/byte_level.h"

#include <array>
#include <cstdint>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr std::size_t kLetters = 0x100 + 68;

constexpr bool prints(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

struct Alphabet {
  std::array<char32_t, 256> letter_of_byte{};
  std::array<std::int16_t, kLetters> byte_of_letter{};  // -1: the code point is not a letter of it
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of_letter) byte = -1;
  char32_t shifted = kFirstShifted;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t letter = prints(byte) ? static_cast<char32_t>(byte) : shifted++;
    alphabet.letter_of_byte[byte] = letter;
    alphabet.byte_of_letter[letter] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const Utf8Step step = read_utf8(token);
    if (step.kind != Utf8Kind::complete || step.code_point >= kLetters) return std::nullopt;
    const int byte = kAlphabet.byte_of_letter[step.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    token.remove_prefix(step.size);
  }
  return bytes;
}

std::string token_of_bytes(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) append_utf8(kAlphabet.letter_of_byte[static_cast<unsigned char>(byte)], token);
  return token;
}

std::string decoded_bytes(std::string_view token) {
  auto bytes = bytes_of_token(token);
  return bytes ? *std::move(bytes) : std::string(token);
}

}  // namespace nodewright
