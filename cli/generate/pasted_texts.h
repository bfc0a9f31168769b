// Texts that were pasted into a line: a short one stands there as it is, a long one as "[pasted text 1: 120 lines]"
// until the line is read.
#pragma once

#include <string>
#include <vector>

namespace nodewright::cli {

class PastedTexts {
 public:
  // What stands in the line for it.
  std::string shown(std::string text);
  // The line with what was pasted.
  std::string whole(std::string line) const;

 private:
  struct Text {
    std::string mark, text;
  };
  std::vector<Text> texts_;
};

// What a terminal sends as a pasted text, as text: its line breaks are one each, none stands at the end, and no other
// control character but tabs is left.
std::string pasted_text(const std::string& sent);

}  // namespace nodewright::cli
