// The component "decoder" of tokenizer.json: how the spellings of tokens become text, a token at a time. Knows neither
// file nor vocabulary.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/steps/text_assembly.h"
#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

// Steps that change one token, by the names of tokenizer.json.
struct MetaspaceDecoder {
  std::string replacement = "\u2581";  // becomes a space: one character
  bool drops_first = true;             // those of the first token become nothing
};
struct WordPieceDecoder {
  std::string prefix = "##";  // goes; without it a space comes before a token that is not the first
  bool cleanup = true;        // no spaces before punctuation and English contractions
};
struct StripDecoder {
  char32_t content = U' ';
  std::size_t start = 0, stop = 0;  // at most as many of it go at either end
};
struct BpeDecoder {
  std::string suffix = "</w>";  // becomes a space, or nothing in the last token
};
struct CtcDecoder {
  std::string pad = "<pad>", delimiter = "|";  // the first goes, the second becomes a space; of equal tokens one stays
  bool cleanup = true;                         // as WordPiece's; without it the delimiter stays, too
};
struct SpaceBetween {};  // a file without decoder: a space before a token that is not the first

using DecoderStep =
    std::variant<Replacement, MetaspaceDecoder, WordPieceDecoder, StripDecoder, BpeDecoder, CtcDecoder, SpaceBetween>;

// Where tokens begin that become text: with a text of their own, or after tokens that are not decoded, such as those
// of a prompt. Some decoders take a space from the start of a text, which an answer's first word keeps.
enum class TextStart { new_text, behind_prompt };

class TokenDecoder {
 public:
  enum class Bytes {
    none,      // spellings are text
    letters,   // in the letters of byte_level.h
    fallback,  // tokens <0x00> to <0xFF> are bytes
    pieces,    // so they are, and broken ones spoil no others: SentencePiece
  };

  void add(DecoderStep step) { steps_.push_back(std::move(step)); }
  void set_bytes(Bytes bytes) { bytes_ = bytes; }
  // Strip after Fuse: of the whole text.
  void set_strip(StripDecoder strip) { strip_ = strip; }

  Bytes bytes() const { return bytes_; }
  const std::vector<DecoderStep>& steps() const { return steps_; }

  // Whether a token stands for other text where it is the first, or depends on those beside it: its spelling is needed.
  bool looks_around() const;

  // What a token adds to the text where others are around it: bytes, perhaps of a part of a character.
  struct Decoded {
    std::string bytes;
    bool fallback_byte = false;  // one byte of a run
  };
  Decoded decoded(std::string_view spelling) const { return decoded(spelling, false); }

  // Where a text stands between two tokens: what waits, and what has been.
  struct Place {
    TextAssembly assembly;
    bool begun = false;   // some token has come
    std::size_t cut = 0;  // characters that Strip may still take from the start
    std::string held;     // text that Strip may take from the end, or that BpeDecoder's suffix depends on
    std::string last;     // CTC: the spelling of the last token
  };

  // The place after tokens that are not decoded here, such as those of a prompt.
  Place middle() const;

  // Appends to `text` what this token settles. `spelling` is needed where looks_around(). Throws Error if an expression
  // gives up. Thread-safe.
  void append(const Decoded& token, std::string_view spelling, Place& place, std::string& text) const;

  // Appends what still waits. The place is then as new.
  void finish(Place& place, std::string& text) const;

 private:
  Decoded decoded(std::string_view spelling, bool first) const;
  void append_decoded(const Decoded& token, Place& place, std::string& text) const;
  void append_stripped(std::string_view part, Place& place, std::string& text) const;
  std::string step_of(const DecoderStep& step, std::string_view token, bool first) const;

  std::vector<DecoderStep> steps_;
  Bytes bytes_ = Bytes::none;
  StripDecoder strip_;
};

}  // namespace nodewright
