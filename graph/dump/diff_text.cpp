// to_text of a PlanDiff: for people, and for a review.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "graph/dump/plan_diff.h"

namespace nodewright {
namespace {

using How = ChangedItem::How;

constexpr size_t kMostTimes = 20;  // nodes whose times are printed, unless all are asked for

std::string section(std::string_view title, const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes)
    fmt::format_to(std::back_inserter(text), "  ~ {}: {} -> {}\n", change.what, change.before, change.after);
  return text.empty() ? text : fmt::format("{}\n{}", title, text);
}

// Items that are the same but for the layer, in the order of the first.
struct Group {
  const ChangedItem* first = nullptr;
  std::vector<std::string> layers;
};

std::vector<Group> groups_of(const std::vector<ChangedItem>& items, bool full) {
  std::vector<Group> groups;
  std::map<std::tuple<How, std::string, std::string>, size_t> known;
  for (const ChangedItem& item : items) {
    const std::string& key = full || item.layer.empty() ? item.line : item.folded_line;
    const auto [at, is_new] = known.try_emplace({item.how, item.plan, key}, groups.size());
    if (is_new) groups.push_back({&item, {}});
    groups[at->second].layers.push_back(item.layer);
  }
  return groups;
}

std::string text_of(const Group& group) {
  const ChangedItem& item = *group.first;
  const char* sign = item.how == How::added ? "+" : item.how == How::removed ? "-" : "~";
  const std::string where = item.plan.empty() ? "" : item.plan + ": ";
  if (group.layers.size() == 1) return fmt::format("  {} {}{}\n", sign, where, item.line);
  return fmt::format("  {} {}{} | {} layers: {} .. {}\n", sign, where, item.folded_line, group.layers.size(),
                     group.layers.front(), group.layers.back());
}

std::string section(std::string_view title, const std::vector<ChangedItem>& items, bool full) {
  std::string text;
  for (const Group& group : groups_of(items, full)) text += text_of(group);
  return text.empty() ? text : fmt::format("{}\n{}", title, text);
}

std::string line_of(const TimeChange& time) {
  const std::string percent =
      time.before_us > 0 ? fmt::format(" ({:+.1f} %)", (time.after_us / time.before_us - 1) * 100) : "";
  return fmt::format("  {}: {:.3f} -> {:.3f}{}\n", time.name, time.before_us, time.after_us, percent);
}

std::string times_of(const PlanDiff& diff, bool full) {
  if (!diff.step) return "";
  std::string text = "times, us\n" + line_of(*diff.step);
  const size_t shown = full ? diff.times.size() : std::min(diff.times.size(), kMostTimes);
  for (size_t i = 0; i < shown; ++i) text += line_of(diff.times[i]);
  if (shown < diff.times.size()) text += fmt::format("  and {} nodes that differ by less\n", diff.times.size() - shown);
  return text;
}

}  // namespace

std::string to_text(const PlanDiff& diff, bool full) {
  const std::string differences = section("plan", diff.plan) + section("buffers", diff.buffers, full) +
                                  section("nodes", diff.nodes, full) + section("edges", diff.edges, full);
  return fmt::format("before {}\nafter  {}\n", diff.before, diff.after) + section("about", diff.about) +
         section("totals", diff.totals) + differences + times_of(diff, full) +
         (diff.equal() ? "the plans are the same\n" : "");
}

}  // namespace nodewright
