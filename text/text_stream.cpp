// Incremental detokenization: one TokenDecoder::Place fed a token at a time, just as Tokenizer::decode does it.
#include "text/text_stream.h"

namespace nodewright {

std::string TextStream::push(TokenId id) {
  std::string text;
  tokenizer_->append_text(id, skip_special_, place_, text);
  return text;
}

std::string TextStream::flush() {
  std::string text;
  tokenizer_->decoder().finish(place_, text);
  return text;
}

}  // namespace nodewright
