// Text of others (models, files, clients, the command line) made safe for a terminal and a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nodewright {

// `text` with nothing in it that drives a terminal or breaks a line unseen: control characters of C0 and C1, DEL, the
// separators U+2028 and U+2029, marks that turn the direction of writing, and bytes that are not UTF-8 become \xNN or
// \u{NNNN}. Line feeds and tabs stay.
std::string visible_text(std::string_view text);

// A word of a log line: the same, and of line feeds, tabs and spaces as well; at most `most_bytes` long, what is cut
// off counted at its end.
std::string log_word(std::string_view text, size_t most_bytes);

}  // namespace nodewright
