// Options of the commands with an engine that contradict each other: reported before anything is loaded, each with the
// other's name and a way out. What depends on a device or on weights is checked where those are known (engine/engine.h,
// page_budget.h).
#pragma once

#include <cstdint>

#include "cli/options/engine_options.h"
#include "cli/session.h"

namespace nodewright::cli {

// `model_context`: tokens that the model was made for. Throws Error (usage).
void check_pairs(const EngineSettings& given, const SessionOptions& session, int64_t model_context);

}  // namespace nodewright::cli
