#include "cli/generate/pasted_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nodewright::cli {
namespace {

constexpr std::ptrdiff_t kShownLines = 8;  // fit a terminal without scrolling
constexpr size_t kShownBytes = 1000;

}  // namespace

std::string PastedTexts::shown(std::string text) {
  const std::ptrdiff_t breaks = std::ranges::count(text, '\n');
  if (breaks < kShownLines && text.size() <= kShownBytes) return text;
  for (const Text& one : texts_)
    if (one.text == text) return one.mark;
  std::string mark = breaks == 0 ? fmt::format("[pasted text {}: {} bytes]", texts_.size() + 1, text.size())
                                 : fmt::format("[pasted text {}: {} lines]", texts_.size() + 1, breaks + 1);
  texts_.push_back({mark, std::move(text)});
  return mark;
}

std::string PastedTexts::whole(std::string line) const {
  std::string text;
  for (size_t at = 0; at < line.size();) {
    const auto here =
        std::ranges::find_if(texts_, [&](const Text& one) { return line.compare(at, one.mark.size(), one.mark) == 0; });
    if (here == texts_.end()) {
      text += line[at++];
    } else {
      text += here->text;
      at += here->mark.size();
    }
  }
  return text;
}

std::string pasted_text(const std::string& sent) {
  std::string text;
  for (size_t i = 0; i < sent.size(); ++i) {
    const auto c = static_cast<unsigned char>(sent[i]);
    if (c == '\r') {
      text += '\n';
      if (i + 1 < sent.size() && sent[i + 1] == '\n') ++i;
    } else if (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f)) {
      text += sent[i];
    }
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace nodewright::cli
