// Text of tokens as they come, one at a time: the bytes of a character that is not yet complete wait for the next
// token. Holds no token and decodes none twice.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// All that push() and the last flush() returned, joined, equals Tokenizer::decode of all the ids, but for `shown`;
// after a prompt, with the space that the decoder would take from the first of them. The tokenizer must outlive the
// stream. Not thread-safe; one stream per sequence.
class TextStream {
 public:
  // `shown`: special tokens that are not skipped, because somebody looks for them in the text.
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = true, TextStart start = TextStart::new_text,
                      std::vector<TokenId> shown = {})
      : tokenizer_(&tokenizer), skip_special_(skip_special), shown_(std::move(shown)) {
    if (start == TextStart::behind_prompt) place_ = tokenizer.decoder().middle();
  }

  // The text that this token completes: valid UTF-8, perhaps empty. Bytes that no later token can mend become U+FFFD
  // at once; a truncated character, at most 3 bytes, waits, and so does a run of byte fallback tokens, of any length,
  // and what the decoder may take from the end of the text. An id without a token adds nothing.
  std::string push(TokenId id);

  // What still waits, as U+FFFD, or nothing. The stream then starts anew.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::vector<TokenId> shown_;
  TokenDecoder::Place place_;
};

}  // namespace nodewright
