// Why the nodes of a graph that was built elsewhere follow each other, as far as their uses show it.
#pragma once

#include "graph/node.h"

namespace nodewright {

// Gives each edge of the plan the hazards between the uses of its two nodes as reasons, and in the plans inside it;
// where there are none it stays declared.
void find_reasons(Plan& plan);

}  // namespace nodewright
