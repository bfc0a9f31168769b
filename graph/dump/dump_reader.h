// Reads the JSON dump of a plan that a file brings, and checks that it has what the comparison and the page look up.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/dump/plan_diff.h"

namespace nodewright {

// Throws the Error (usage) of a file that is no such dump.
[[noreturn]] void refuse_dump(const std::string& source, std::string detail);

// Throws Error (usage) naming the source and the first entry that is missing or of another type.
nlohmann::ordered_json read_dump(const DumpText& dump);

}  // namespace nodewright
