// Tells plans apart by what makes their times differ: kernels with their constants and how they are launched, bytes
// moved, edges. Buffers may lie elsewhere and be larger, and scalar arguments may have other values.
#pragma once

#include <string>

#include "graph/node.h"

namespace nodewright {

// 16 hexadecimal digits, the same for the same plan in every process. Bodies of children and conditions count, too.
std::string plan_hash(const Plan& plan);

}  // namespace nodewright
