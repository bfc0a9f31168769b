// Incremental detokenization: one TextAssembly fed a token at a time, just as Tokenizer::decode does it.
#include "text/text_stream.h"

#include <algorithm>

namespace nodewright {

std::string TextStream::push(TokenId id) {
  std::string text;
  const bool skips = skip_special_ && std::ranges::find(shown_, id) == shown_.end();
  tokenizer_->append_text(id, skips, assembly_, text);
  return text;
}

std::string TextStream::flush() {
  std::string text;
  assembly_.finish(text);
  return text;
}

}  // namespace nodewright
