// What the patches of all kinds of nodes share.
#pragma once

#include <string>
#include <string_view>

#include "graph/node.h"

namespace nodewright {

// Throws the Error of a patch that is refused.
[[noreturn]] void refuse_patch(const PlanNode& node, std::string detail, std::string advice);

// The use that a memory field was built with; null when the field was empty.
const Use* use_of(const PlanNode& node, std::string_view field);

}  // namespace nodewright
