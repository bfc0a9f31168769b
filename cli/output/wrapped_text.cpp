#include "cli/output/wrapped_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cwchar>

#include "text/unicode/utf8.h"

namespace nodewright::cli {
namespace {

constexpr int kTab = 8;  // columns
constexpr std::string_view kFence = "```";

// Columns of a character; one where the locale does not know it.
int width_of(char32_t character) {
  const int width = wcwidth(static_cast<wchar_t>(character));
  return width < 0 ? 1 : width;
}

}  // namespace

std::string WrappedText::push(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = read_utf8(text);
    const std::string_view character = text.substr(0, step.size);
    text.remove_prefix(step.size);
    if (step.code_point == '\n') {
      end_line(out);
      continue;
    }
    if (line_begins_) {
      if (step.code_point == '`') fence_ += '`';
      if (step.code_point != ' ' && step.code_point != '`') line_begins_ = false;
      if (fence_ == kFence) line_begins_ = false;
    }
    if (step.code_point == '\t') {
      out += character;
      column_ = std::min((column_ / kTab + 1) * kTab, columns_ - 1);
      word_.clear();
      word_width_ = 0;
    } else {
      put(character, width_of(step.code_point), out);
    }
  }
  return out;
}

void WrappedText::put(std::string_view character, int width, std::string& out) {
  const bool crosses = column_ + width > columns_;
  const bool is_space = character == " ";
  if (crosses && is_space && !in_fence_) {  // the line break takes its place
    out += "\r\n";
    column_ = 0;
  } else {
    if (crosses) {
      const int start = column_ - word_width_;
      // A word that fills the line is broken by the terminal, and so is a text without spaces.
      if (!in_fence_ && word_width_ > 0 && start > 0) {
        out += fmt::format("\r\033[{}C\033[K\r\n{}", start, word_);
        column_ = word_width_;
      } else {
        column_ = 0;
        word_.clear();
        word_width_ = 0;
      }
    }
    out += character;
    column_ += width;
  }
  if (is_space || width == 2) {  // a line may end after wide characters, which stand without spaces
    word_.clear();
    word_width_ = 0;
  } else {
    word_ += character;
    word_width_ += width;
  }
}

void WrappedText::end_line(std::string& out) {
  out += '\n';
  if (fence_ == kFence) in_fence_ = !in_fence_;
  column_ = word_width_ = 0;
  word_.clear();
  fence_.clear();
  line_begins_ = true;
}

}  // namespace nodewright::cli
