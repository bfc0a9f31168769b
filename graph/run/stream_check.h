// A plan runs on streams of its own device: the check of all runs.
#pragma once

#include <string_view>

#include "graph/node.h"
#include "runtime/stream.h"

namespace nodewright {

// Throws Error, with both devices, where the stream is of another device or context than the plan of that name.
// `doing`: "launch graph".
void check_stream(const Device& device, std::string_view plan_name, const Stream& stream, std::string_view doing);
inline void check_stream(const Plan& plan, const Stream& stream, std::string_view doing) {
  check_stream(*plan.device, plan.name, stream, doing);
}

}  // namespace nodewright
