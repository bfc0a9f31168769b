// Incremental detokenization: one TextAssembly fed a token at a time, just as Tokenizer::decode does it.
#include "text/text_stream.h"

namespace nodewright {

std::string TextStream::push(TokenId id) {
  std::string text;
  tokenizer_->append_text(id, skip_special_, assembly_, text);
  return text;
}

std::string TextStream::flush() {
  std::string text;
  assembly_.finish(text);
  return text;
}

}  // namespace nodewright
