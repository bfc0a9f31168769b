// The plans of an engine's graphs as pages: GET /plan?bucket=N. Holds copies, so no thread touches the engine.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/topology/step_slots.h"
#include "graph/node.h"
#include "graph/timing/plan_timings.h"

namespace nodewright {

// Immutable: any thread may use it.
class PlanPages {
 public:
  // No plan at all.
  PlanPages() = default;
  // Makes the page of each bucket of `slots` with an explicit graph. `about`: the head of each page. `timings`: of the
  // plan of bucket `timed`, or none. To be called before the engine runs, on its thread.
  PlanPages(const StepSlots& slots, PlanFacts about, std::optional<PlanTimings> timings = {}, int timed = 0);

  // Rows of the graphs that have a page, ascending.
  const std::vector<int>& buckets() const { return buckets_; }
  // The page for a query such as "bucket=8"; without a bucket, the largest's. Throws ApiError: 400 for a bucket that is
  // no number, 404 for one that has no page.
  std::string html(std::string_view query) const;

 private:
  std::map<int, Plan> plans_;
  std::vector<int> buckets_;
  PlanFacts about_;
  std::optional<PlanTimings> timings_;
  int timed_ = 0;
};

}  // namespace nodewright
