// What the engine's thread is asked to do about its sleep, and what became of it: the contract between the server,
// which knows HTTP, and the loop, which knows the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/sleep.h"

namespace nodewright {

enum class SleepEnd : uint8_t {
  done,        // or there was nothing to do
  called_off,  // of a sleep: it still waited for open outputs when somebody woke the engine
  failed,      // the engine is as it was before; or has failed, and the loop ends
  not_now,     // the loop loads, drains or has failed, or it ended before it came to this
};

struct SleepOutcome {
  SleepEnd end = SleepEnd::done;
  SleepLevel level = SleepLevel::awake;  // of the engine now
  SleepChange change;                    // of what is done
  std::string problem;                   // of what failed
};

// Called once for each order; must neither block nor throw.
using SleepTold = std::function<void(const SleepOutcome&)>;

struct SleepOrder {
  enum class Kind : uint8_t { sleep, wake, wake_weights };
  Kind kind = Kind::sleep;
  SleepLevel level = SleepLevel::weights_on_host;  // of a sleep: 1 or 2
  bool aborts = false;                             // of a sleep: open outputs are cancelled; otherwise they end first
  SleepTold told;
};

}  // namespace nodewright
