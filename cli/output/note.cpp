#include "cli/output/note.h"

#include <unistd.h>

#include "base/visible_text.h"
#include "cli/output/say.h"
#include "cli/output/terminal_kind.h"
#include "cli/output/wrapped_text.h"

namespace nodewright::cli {

void note(std::string_view text) noexcept {
  try {
    if (const int columns = columns_of(STDERR_FILENO); columns > 0)
      return draw(WrappedText(columns).push(visible_text(text)));
  } catch (...) {  // no memory for it
  }
  say_text(text);
}

}  // namespace nodewright::cli
