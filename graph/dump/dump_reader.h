// Reads the JSON dump of a plan that a file brings, and checks that it has what the comparison and the page look up.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "graph/dump/plan_diff.h"

namespace nodewright {

// Throws Error (usage) naming the source and the first entry that is missing or of another type.
nlohmann::ordered_json read_dump(const DumpText& dump);

}  // namespace nodewright
