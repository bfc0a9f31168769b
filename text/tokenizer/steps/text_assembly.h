// The bytes of tokens joined to text, a token at a time. Bytes that are not yet a character wait, because what becomes
// of them may depend on the tokens that follow. Knows no vocabulary.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

class TextAssembly {
 public:
  // Appends to `text` what `bytes`, those of one token, settle. Invalid UTF-8 becomes U+FFFD, one for each maximal
  // ill-formed subpart, as in Rust's String::from_utf8_lossy.
  void append_bytes(std::string_view bytes, std::string& text);

  // The same for a token that stands for one byte (<0x0A>). A run of such tokens waits for its end: it is valid UTF-8
  // as a whole, or each of its bytes becomes U+FFFD. Do not mix with append_bytes; characters go to append_text.
  // Source: decoders/byte_fallback.rs of the `tokenizers` library.
  void append_byte_of_run(char byte, std::string& text);

  // The same as SentencePiece does it: of a run the characters stay, and each byte of no character becomes U+FFFD.
  // Source: DecodePieces of sentencepiece/src/sentencepiece_processor.cc.
  void append_byte_of_piece(char byte, std::string& text);

  // Ends a run of bytes, then appends `token`, which is valid UTF-8.
  void append_text(std::string_view token, std::string& text);

  // Appends what becomes of the bytes that still wait. The next token then starts anew.
  void finish(std::string& text);

 private:
  std::string waiting_;       // up to 3 bytes of a character, or the bytes of a run
  std::size_t complete_ = 0;  // bytes of a run that are whole characters
  bool in_run_ = false;
  bool run_is_invalid_ = false;  // then nothing waits
};

}  // namespace nodewright
