// What browsers write in the headers Origin and Host, so that an option that would never match one is refused.
#pragma once

#include <string>

namespace nodewright::cli {

// For CLI::Option::check: what is wrong, or nothing.
// "http://localhost:3000", "null" or "*".
std::string why_no_origin(const std::string& text);
// "models.example", ".example" or "*".
std::string why_no_host_name(const std::string& text);

}  // namespace nodewright::cli
