// Options of `nodewright run` that contradict each other: told before anything is loaded, each with the other's name
// and a way out. What depends on a device or on weights is checked where those are known (engine/engine.h,
// page_budget.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/session.h"
#include "engine/engine.h"

namespace nodewright::cli {

struct GivenOptions {
  const SessionOptions& session;
  const EngineOptions& engine;  // of the command line; `prefill` and `chunk` are not set
  std::optional<int> chunk;
  std::string prefill;
  bool products_from = false;  // it was given
  int64_t model_context = 0;   // tokens that the model was made for
};

// Throws Error (usage).
void check_pairs(const GivenOptions& given);

}  // namespace nodewright::cli
