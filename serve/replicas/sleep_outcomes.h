// What became of one order that several replicas were given. Pure.
#pragma once

#include <span>

#include "serve/loop/sleep_order.h"

namespace nodewright {

// The outcome over all replicas: failed where one failed, each problem after its replica's number; called off where one
// was. A
// replica that could not follow (not_now) counts only where none could. The level is the lowest, memory is added up,
// and times are those of the slowest.
SleepOutcome combined(std::span<const SleepOutcome> outcomes);

}  // namespace nodewright
