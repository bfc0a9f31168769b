// Texts by their bytes in a context-free grammar: a vocabulary of single bytes, and words that are longer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/grammar/context_free.h"

namespace nodewright::test {

// Ids are bytes: a text is its own list of tokens.
inline std::shared_ptr<const GrammarVocabulary> single_bytes() {
  return std::make_shared<GrammarVocabulary>(load(byte_tokenizer()), 256);
}

inline std::vector<int32_t> bytes_as_tokens(std::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

// Reads texts byte by byte.
class ByteReader {
 public:
  ByteReader(ContextFreeCompiler& bytes, const std::string& rules) : text_(bytes.compile(rules)) {}

  // Whether the grammar has a text that begins so.
  bool may_begin(std::string_view text) {
    try {
      text_.follow(bytes_as_tokens(text));
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  bool matches(std::string_view text) { return may_begin(text) && text_.is_complete(); }

 private:
  ContextFreeText text_;
};

}  // namespace nodewright::test
