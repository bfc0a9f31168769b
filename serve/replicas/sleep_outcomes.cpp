#include "serve/replicas/sleep_outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace nodewright {
namespace {

void add_change(SleepChange& sum, const SleepChange& one) {
  sum.free_before += one.free_before;
  sum.free_after += one.free_after;
  sum.seconds = std::max(sum.seconds, one.seconds);
  for (const SleepChange::Part& part : one.parts) {
    const auto same = std::ranges::find(sum.parts, part.name, &SleepChange::Part::name);
    if (same == sum.parts.end())
      sum.parts.push_back(part);
    else
      same->seconds = std::max(same->seconds, part.seconds);
  }
}

}  // namespace

SleepOutcome combined(std::span<const SleepOutcome> outcomes) {
  if (outcomes.size() == 1) return outcomes.front();
  std::vector<size_t> followed;
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].end != SleepEnd::not_now) followed.push_back(i);
  SleepOutcome sum{.end = SleepEnd::not_now};
  if (followed.empty()) return sum;
  sum.level = outcomes[followed.front()].level;
  const auto some = [&](SleepEnd end) {
    return std::ranges::any_of(followed, [&](size_t i) { return outcomes[i].end == end; });
  };
  sum.end = some(SleepEnd::failed)       ? SleepEnd::failed
            : some(SleepEnd::called_off) ? SleepEnd::called_off
                                         : SleepEnd::done;
  for (const size_t i : followed) {
    const SleepOutcome& one = outcomes[i];
    sum.level = std::min(sum.level, one.level);
    add_change(sum.change, one.change);
    if (one.end == SleepEnd::failed)
      sum.problem += fmt::format("{}replica {}: {}", sum.problem.empty() ? "" : "; ", i, one.problem);
  }
  return sum;
}

}  // namespace nodewright
