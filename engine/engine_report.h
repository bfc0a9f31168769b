// What an engine's start took and what its steps were like, as lines of text. Counts nothing itself.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace nodewright {

// A line for each bucket, one for all of them, one for the graphs of second choices, and one for the memory of all.
std::string start_report(const BuiltGraphs& built, const MemoryUse& memory);

// Steps by bucket with the padding of each, what had no graph, pages, preemptions, the time without work for the
// device, and the buckets that would have fitted these steps better.
std::string serving_report(const Engine& engine);

// At most `count` sizes, the largest of `step_rows` among them, that pad these steps least. Empty without steps.
std::vector<int> suggest_buckets(const std::map<int, int64_t>& step_rows, size_t count);
// Rows of padding when each step runs in the smallest of `buckets`, ascending, that holds it; past the largest, none.
int64_t padding_of(const std::map<int, int64_t>& step_rows, const std::vector<int>& buckets);

}  // namespace nodewright
