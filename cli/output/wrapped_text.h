// A text that comes in parts, for a terminal of a given width: a word that would cross the right edge moves to the next
// line. Lines between ``` are left to the terminal, so that code can be copied as it is.
#pragma once

#include <string>
#include <string_view>

namespace nodewright::cli {

class WrappedText {
 public:
  // `columns`: of the terminal, whose cursor is at the left edge.
  explicit WrappedText(int columns) : columns_(columns) {}

  // What to write for `text`: whole characters of UTF-8 without escape codes. Moving a word takes some.
  std::string push(std::string_view text);

 private:
  void put(std::string_view character, int width, std::string& out);
  void end_line(std::string& out);

  int columns_;
  int column_ = 0;      // of the cursor; columns_: past the last one
  std::string word_;    // that the line ends in so far
  int word_width_ = 0;  // columns
  std::string fence_;   // the marks that the line begins with, while it may be a fence
  bool line_begins_ = true, in_fence_ = false;
};

}  // namespace nodewright::cli
