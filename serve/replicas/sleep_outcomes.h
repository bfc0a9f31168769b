// What became of one order that several replicas were given. Pure.
#pragma once

#include <span>

#include "serve/loop/sleep_order.h"

namespace nodewright {

// Of all of them: failed where one has, with each one's problem behind its number; else called off where one was. A
// replica that could not follow (not_now) counts only where none could. The level is the lowest, memory is added up,
// and times are those of the slowest.
SleepOutcome combined(std::span<const SleepOutcome> outcomes);

}  // namespace nodewright
