// How the rows of buckets become plans, and within which limits: shared by step_slots.cpp and step_slots_build.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "engine/device/step_slots_options.h"
#include "models/step/lanes.h"

namespace nodewright {

// Rows by bucket; 0: the eager plan's.
inline std::map<int, int> plans_of(const StepSlotsOptions& options) {
  std::map<int, int> rows;
  for (const int bucket : options.buckets.sizes()) rows[bucket] = bucket;
  if (options.eager_rows > 0) rows[0] = options.eager_rows;
  return rows;
}

inline DecodeLimits limits_of(const StepSlotsOptions& options, const Collectives* collectives) {
  return {.rows = std::max(options.buckets.largest(), options.eager_rows),
          .max_context = options.max_context,
          .sequences = options.sequences,
          .products_from = options.products_from,
          .numerics = options.numerics,
          .most_sampled = options.most_sampled,
          .hidden = options.hidden,
          .steps = options.steps,
          .tuning = options.tuning,
          .adapters = options.adapters,
          .collectives = collectives != nullptr,
          .lanes = options.lanes};
}

// Few on the CPU driver, where the rows of a slice that do not count cost as much as the others.
inline constexpr int64_t kRowsOfSliceOnCpu = 8;

inline ScoreLimits score_limits_of(const Device& device, const DecoderModel& model, const StepSlotsOptions& options) {
  return score_limits(model.config(), limits_of(options, nullptr),
                      device.driver().is_cpu() ? kRowsOfSliceOnCpu : kRowsOfSlice);
}

// The shape of each half of a bucket that is two lanes.
inline std::optional<StepShape> lane_shape_of(const DecoderModel& model, const StepSlotsOptions& options, int bucket) {
  return lane_shape(model.config(), network_form(network_of(model.config())), limits_of(options, nullptr), bucket);
}

inline StepShape shape_of(const DecoderModel& model, const StepSlotsOptions& options, int rows,
                          const Collectives* collectives) {
  return step_shape(model.config(), limits_of(options, collectives), rows);
}

}  // namespace nodewright
