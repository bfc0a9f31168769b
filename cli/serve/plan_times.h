// nodewright serve --plan-times: what each node of the engine's largest decode graph takes, before it serves.
#pragma once

#include "cli/session.h"
#include "engine/engine.h"
#include "graph/timing/plan_timings.h"

namespace nodewright::cli {

// The largest bucket whose rows all decode: `rows`, or the next above; 0 where no graph has a plan.
int decode_bucket(const StepSlots& slots, int rows);

// Keys that each row of the timed step attends to: 1024, or what the context or the cache's pages allow.
int64_t timed_context(const Engine& engine, int rows);

// Launches the graph of `bucket`, with `rows` sequences, alone and with stamps, some hundred times. The engine must be
// new: what its cache and its sequences hold is overwritten. Throws Error (usage) on a CPU driver that overwrites what
// a step has copied in: the same step is launched again and again.
PlanTimings time_plan(Session& session, Engine& engine, int bucket, int rows);

}  // namespace nodewright::cli
