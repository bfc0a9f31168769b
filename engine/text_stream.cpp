// Incremental detokenization over the decoder of utf8.h. Whether bytes are truncated or invalid never depends on what
// comes later, so emitting early changes nothing in the joined text.
#include "engine/text_stream.h"

#include "engine/utf8.h"

namespace nodewright {

std::string TextStream::push(TokenId id) {
  const auto bytes = tokenizer_->id_to_bytes(id);
  std::string text;
  if (skip_special_ && tokenizer_->is_special(id)) return text;
  waiting_ += bytes;
  waiting_.erase(0, append_complete_utf8(waiting_, text));
  return text;
}

std::string TextStream::flush() {
  std::string text = to_valid_utf8(waiting_);
  waiting_.clear();
  return text;
}

}  // namespace nodewright
