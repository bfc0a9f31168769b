// What the parts of an engine are made with, derived from its options.
#pragma once

#include <cstdint>

#include "engine/cache/kv_pool.h"
#include "engine/engine_options.h"
#include "engine/schedule/scheduler.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

// The options. Throws Error (usage) where one is out of range or contradicts another, naming both.
const EngineOptions& checked_options(const EngineOptions& options, const ModelConfig& config);
// With what the options leave to the device. Throws Error as checked_options().
EngineOptions completed_options(EngineOptions options, const ModelConfig& config, const Device& device);

// All of these take completed options.
KvPoolOptions pool_options(const EngineOptions& options, const ModelConfig& config, int64_t pages);
SchedulerOptions scheduling_options(const EngineOptions& options);  // without drafts
StepSlotsOptions slot_options(const EngineOptions& options, const ModelConfig& config);
// Rows of the plan that runs what is past the largest bucket; 0: nothing is.
int eager_rows_of(const EngineOptions& options);

}  // namespace nodewright
