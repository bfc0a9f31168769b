#include "serve/page/plan_pages.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "graph/dump/graph_dump.h"
#include "serve/api/api_error.h"
#include "serve/http/messages/query_fields.h"

namespace nodewright {

PlanPages::PlanPages(const StepSlots& slots, PlanFacts about, std::optional<PlanTimings> timings, int timed)
    : about_(std::move(about)), timings_(std::move(timings)), timed_(timed) {
  for (const BuiltBucket& built : slots.built().graphs)
    if (const Plan* plan = slots.plan(built.bucket)) plans_.try_emplace(built.bucket, *plan);
  for (const auto& [bucket, plan] : plans_) buckets_.push_back(bucket);
}

std::string PlanPages::html(std::string_view query) const {
  if (buckets_.empty()) throw ApiError(404, "no plan is kept: the steps do not run as explicit graphs (--mode)");
  int bucket = buckets_.back();
  if (const std::string_view word = query_value(query, "bucket"); !word.empty()) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bucket);
    if (error != std::errc() || end != word.data() + word.size())
      throw ApiError(400, fmt::format("bucket is {}, expected a number of rows", word), "bucket");
  }
  const auto found = plans_.find(bucket);
  if (found == plans_.end())
    throw ApiError(404, fmt::format("there is no graph of {} rows; there are {}", bucket, fmt::join(buckets_, ", ")),
                   "bucket");
  return to_html(found->second, timings_ && bucket == timed_ ? &*timings_ : nullptr, about_);
}

}  // namespace nodewright
