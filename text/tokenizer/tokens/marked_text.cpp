#include "text/tokenizer/tokens/marked_text.h"

#include <algorithm>

#include "text/tokenizer/tokens/normal_text.h"

namespace nodewright {

bool MarkedText::has_barrier_within(std::size_t begin, std::size_t end) const {
  if (!is_marked() || end < begin + 2) return false;
  return std::any_of(marks.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                     marks.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char mark) { return (mark & kBarrier) != 0; });
}

void MarkedWriter::keep(std::size_t size) {
  const std::size_t first = to_.text.size();
  to_.text.append(from_.text, done_, size);
  check_normal_length(to_.text);
  if (from_.is_marked() && size > 0) {
    to_.marks.append(from_.marks, done_, size);
    to_.marks[first] = static_cast<char>(to_.marks[first] | barrier_);
    barrier_ = 0;
  }
  done_ += size;
}

void MarkedWriter::replace(std::size_t size, std::string_view normal) {
  const std::size_t first = to_.text.size();
  to_.text += normal;
  check_normal_length(to_.text);
  if (from_.is_marked()) {
    char users = 0;
    for (std::size_t at = done_; at < done_ + size; ++at)
      users = static_cast<char>(users | (from_.marks[at] & kUsersByte));
    if (size > 0) barrier_ = static_cast<char>(barrier_ | (from_.marks[done_] & kBarrier));
    to_.marks.append(normal.size(), users);
    if (!normal.empty()) {
      to_.marks[first] = static_cast<char>(to_.marks[first] | barrier_);
      barrier_ = 0;
    }
  }
  done_ += size;
}

void MarkedWriter::insert(std::string_view own) {
  to_.text += own;
  check_normal_length(to_.text);
  if (from_.is_marked()) to_.marks.append(own.size(), '\0');
}

void MarkedWriter::erase_end(std::size_t size) {
  to_.text.erase(to_.text.size() - size);
  if (from_.is_marked()) to_.marks.resize(to_.text.size());
}

}  // namespace nodewright
