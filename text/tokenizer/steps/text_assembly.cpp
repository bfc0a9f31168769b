// Whether bytes are truncated or invalid never depends on what comes later, so settling them early changes nothing.
#include "text/tokenizer/steps/text_assembly.h"

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr char32_t kReplacementCharacter = 0xFFFD;

}  // namespace

void TextAssembly::append_bytes(std::string_view bytes, std::string& text) {
  waiting_ += bytes;
  waiting_.erase(0, append_complete_utf8(waiting_, text));
}

void TextAssembly::append_byte_of_run(char byte, std::string& text) {
  in_run_ = true;
  if (run_is_invalid_) {
    append_utf8(kReplacementCharacter, text);
    return;
  }
  waiting_ += byte;
  const Utf8Step step = read_utf8(std::string_view(waiting_).substr(complete_));
  if (step.kind == Utf8Kind::complete) complete_ += step.size;
  if (step.kind == Utf8Kind::invalid) {
    run_is_invalid_ = true;
    for (std::size_t i = 0; i < waiting_.size(); ++i) append_utf8(kReplacementCharacter, text);
    waiting_.clear();
  }
}

void TextAssembly::append_byte_of_piece(char byte, std::string& text) {
  in_run_ = true;
  waiting_ += byte;
  while (!waiting_.empty()) {
    const Utf8Step step = read_utf8(waiting_);
    if (step.kind == Utf8Kind::truncated) break;
    if (step.kind == Utf8Kind::complete) {
      text += waiting_.substr(0, step.size);
    } else {
      for (std::uint32_t i = 0; i < step.size; ++i) append_utf8(kReplacementCharacter, text);
    }
    waiting_.erase(0, step.size);
  }
}

void TextAssembly::append_text(std::string_view token, std::string& text) {
  finish(text);
  text += token;
}

void TextAssembly::finish(std::string& text) {
  if (in_run_ && complete_ < waiting_.size()) {
    for (std::size_t i = 0; i < waiting_.size(); ++i) append_utf8(kReplacementCharacter, text);
  } else {
    text += to_valid_utf8(waiting_);
  }
  *this = {};
}

}  // namespace nodewright
