// Incremental detokenization: one TokenDecoder::Place fed a token at a time, just as Tokenizer::decode does it.
#include "text/text_stream.h"

#include <algorithm>

namespace nodewright {

std::string TextStream::push(TokenId id) {
  std::string text;
  const bool skips = skip_special_ && std::ranges::find(shown_, id) == shown_.end();
  tokenizer_->append_text(id, skips, place_, text);
  return text;
}

std::string TextStream::flush() {
  std::string text;
  tokenizer_->decoder().finish(place_, text);
  return text;
}

}  // namespace nodewright
