// Text of tokens as they come, one at a time: the bytes of a character that is not yet complete wait for the next
// token. Holds no token and decodes none twice.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/text_assembly.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// All that push() and the last flush() returned, joined, equals Tokenizer::decode of all the ids, but for `shown`.
// The tokenizer must outlive the stream. Not thread-safe; one stream per sequence.
class TextStream {
 public:
  // `shown`: special tokens that are not skipped, because somebody looks for them in the text.
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = true, std::vector<TokenId> shown = {})
      : tokenizer_(&tokenizer), skip_special_(skip_special), shown_(std::move(shown)) {}

  // The text that this token completes: valid UTF-8, perhaps empty. Bytes that no later token can mend become U+FFFD
  // at once; a truncated character, at most 3 bytes, waits, and so does a run of byte fallback tokens, of any length.
  // An id without a token adds nothing.
  std::string push(TokenId id);

  // What still waits, as U+FFFD, or nothing. The stream then starts anew.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::vector<TokenId> shown_;
  TextAssembly assembly_;
};

}  // namespace nodewright
