#include "cli/output/answer_output.h"

#include <unistd.h>

#include "base/visible_text.h"
#include "cli/output/standard_output.h"
#include "cli/output/terminal_kind.h"

namespace nodewright::cli {

AnswerOutput::AnswerOutput() {
  if (const int columns = columns_of(STDOUT_FILENO); columns > 0) wrapped_.emplace(columns);
}

void AnswerOutput::write(std::string_view text) {
  if (wrapped_)
    draw_on_standard_output(wrapped_->push(visible_text(text)));
  else
    write_standard_output(text);
}

}  // namespace nodewright::cli
