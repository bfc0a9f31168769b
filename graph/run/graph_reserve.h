// Makes the driver ready for many graphs before the first of them.
#pragma once

#include <cstddef>

#include "graph/node.h"

namespace nodewright {

// As much of the driver's memory and tables as `graphs` graphs of the plan `like` take: builds one graph of as many
// kernel nodes in a row, which is never launched, and destroys it. What the driver fetched for it, it keeps for the
// graphs that follow. Then no graph pays for the growth of them all: on an H200 (driver 580.159.04, 2026-11-21;
// bench/results/2026-11-21-h200-buckets.txt) two of 102 graphs of 101 nodes took 0.5 ms longer than the others, where
// the driver had 4096 and 8192 nodes. It takes longer than it saves: it is for programs that must build while serving.
//
// Throws Error as ExplicitGraph does when memory is short. A plan without kernel nodes reserves nothing.
void reserve_graphs(const Plan& like, size_t graphs);

}  // namespace nodewright
