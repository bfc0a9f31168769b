// Where the text of an answer goes: standard output, with whole words in each line where that is a terminal.
#pragma once

#include <optional>
#include <string_view>

#include "cli/output/wrapped_text.h"

namespace nodewright::cli {

class AnswerOutput {
 public:
  AnswerOutput();

  // Throws Error like write_standard_output.
  void write(std::string_view text);

 private:
  std::optional<WrappedText> wrapped_;  // none: not a terminal, or one that cannot move its cursor
};

}  // namespace nodewright::cli
