// What the terminal at a descriptor can do.
#pragma once

namespace nodewright::cli {

// It is a terminal, and TERM does not say that it is a dumb one.
bool obeys_escape_codes(int descriptor);

// The same, and NO_COLOR is not set (https://no-color.org).
bool shows_colors(int descriptor);

// Its columns where it obeys escape codes and has room for some words, else 0.
int columns_of(int descriptor);

}  // namespace nodewright::cli
