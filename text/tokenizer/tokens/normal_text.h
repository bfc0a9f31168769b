// The limit of what a normalizer may make of a text, and the replacing of one string by another.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

// Throws Error if `normal` is longer than 1 GiB: word positions are 32-bit.
void check_normal_length(std::string_view normal);

// Every `from`, left to right, replaced by `to`. `from` is not empty. Throws Error like check_normal_length.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace nodewright
