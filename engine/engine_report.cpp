#include "engine/engine_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "engine/byte_size.h"

namespace nodewright {
namespace {

// "2.00 MB less": three digits of what is left would hide what a few graphs take.
std::string change_words(const BuiltGraphs& built) {
  if (built.free_after > built.free_before) return byte_size_text(built.free_after - built.free_before) + " more";
  return byte_size_text(built.free_before - built.free_after) + " less";
}

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string start_report(const BuiltGraphs& built, const MemoryUse& memory) {
  std::string text;
  size_t graphs = 0, nodes = 0;
  for (auto one = built.graphs.begin(); one != built.graphs.end();) {
    const auto next =
        std::find_if(one, built.graphs.end(), [&](const BuiltBucket& b) { return b.bucket != one->bucket; });
    BuiltBucket sum = *one;
    for (auto other = one + 1; other != next; ++other)
      sum.nodes += other->nodes, sum.bytes += other->bytes, sum.ms += other->ms;
    text += fmt::format("bucket    {}: {} nodes, about {}, {:.1f} ms\n",
                        sum.bucket == 0 ? "eager" : std::to_string(sum.bucket), sum.nodes, byte_size_text(sum.bytes),
                        sum.ms);
    nodes += sum.nodes;
    if (sum.bucket > 0) graphs += static_cast<size_t>(next - one);
    one = next;
  }
  if (built.products > 0)
    text += fmt::format("products  {} of a library, their kernels loaded in {:.1f} ms\n", built.products,
                        built.products_ms);
  text += fmt::format("graphs    {} in {} slots: {} nodes, {:.1f} ms on {} threads; {} free before, {} after\n", graphs,
                      kSlots, nodes, built.ms, built.threads, byte_size_text(built.free_before), change_words(built));
  if (built.choice_ms > 0) text += fmt::format("choices   the graphs of second choices: {:.1f} ms\n", built.choice_ms);
  const std::string adapters =
      memory.adapters > 0 ? fmt::format(", {} of adapters", byte_size_text(memory.adapters)) : "";
  return text + fmt::format("memory    {}: {} of weights, {} of state, about {} of graphs, {} of key/value pages{}\n",
                            byte_size_text(memory.total()), byte_size_text(memory.weights),
                            byte_size_text(memory.state), byte_size_text(memory.graphs), byte_size_text(memory.pages),
                            adapters);
}

std::string serving_report(const Engine& engine) {
  const EngineStats& stats = engine.stats();
  int64_t exact = 0, rows = 0, with_graph = 0;
  std::string buckets;
  for (const auto& [plan, use] : stats.buckets) {
    const int64_t computed = plan.first * use.steps;
    buckets += fmt::format("rows      {} ({}): {} steps, {:.1f} % of them exact, {:.1f} % of the rows padding\n",
                           plan.first, to_string(plan.second), use.steps, percent(use.exact, use.steps),
                           percent(computed - use.rows, computed));
    exact += use.exact;
    rows += computed;
    if (plan.second != RunMode::eager) with_graph += use.steps;
  }
  std::string text = fmt::format(
      "steps     {} ({} with prompts, {} with a graph), {:.1f} % of them exact; {} padded rows, {:.1f} %; {} "
      "rows for requests that had ended\n",
      stats.steps(), stats.prefill_steps, with_graph, percent(exact, stats.steps()), stats.padded_rows,
      percent(stats.padded_rows, rows), stats.zombie_rows);
  text += buckets;
  for (const auto& [reason, count] : stats.fallbacks) text += fmt::format("eager     {} steps: {}\n", count, reason);
  if (stats.drafted > 0)
    text += fmt::format("drafts    {}, {} of them accepted, {:.1f} %\n", stats.drafted, stats.accepted_drafts,
                        percent(stats.accepted_drafts, stats.drafted));
  text += fmt::format("pages     {} of {} in use at most, {} preemptions\n", stats.most_pages,
                      engine.pipeline().pool().options().pages, engine.pipeline().preemptions());
  text += fmt::format("idle      {} gaps before a launch, {:.3f} ms in all, {:.3f} at most\n", stats.idle_gaps,
                      stats.idle_ms, stats.longest_idle_ms);
  if (stats.step_rows.empty()) return text;
  const std::vector<int> better = suggest_buckets(stats.step_rows, stats.buckets.size());
  return text + fmt::format("buckets   {} would have padded {} rows\n", fmt::join(better, ","),
                            padding_of(stats.step_rows, better));
}

// least[round][i]: padding of the steps up to the i-th number of rows, that one a bucket and `round` more below it.
std::vector<int> suggest_buckets(const std::map<int, int64_t>& step_rows, size_t count) {
  const std::vector<std::pair<int, int64_t>> steps(step_rows.begin(), step_rows.end());
  const size_t sizes = steps.size();
  if (sizes == 0 || count == 0) return {};
  std::vector<int64_t> steps_before(sizes + 1), rows_before(sizes + 1);
  for (size_t i = 0; i < sizes; ++i) {
    steps_before[i + 1] = steps_before[i] + steps[i].second;
    rows_before[i + 1] = rows_before[i] + steps[i].second * steps[i].first;
  }
  // Padding of the steps from `first` to `last` in a bucket of the last one's rows.
  const auto padding = [&](size_t first, size_t last) {
    return steps[last].first * (steps_before[last + 1] - steps_before[first]) -
           (rows_before[last + 1] - rows_before[first]);
  };
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<int64_t>> least(1, std::vector<int64_t>(sizes));
  std::vector<std::vector<size_t>> below(1, std::vector<size_t>(sizes, sizes));
  for (size_t i = 0; i < sizes; ++i) least[0][i] = padding(0, i);
  for (size_t round = 1; round < std::min(count, sizes); ++round) {
    least.emplace_back(sizes, kNever);
    below.emplace_back(sizes, sizes);
    for (size_t i = round; i < sizes; ++i)
      for (size_t j = round - 1; j < i; ++j)
        if (const int64_t sum = least[round - 1][j] + padding(j + 1, i); sum < least[round][i])
          least[round][i] = sum, below[round][i] = j;
  }
  std::vector<int> buckets;
  for (size_t round = least.size(), i = sizes - 1; round-- > 0; i = below[round][i]) buckets.push_back(steps[i].first);
  std::ranges::reverse(buckets);
  return buckets;
}

int64_t padding_of(const std::map<int, int64_t>& step_rows, const std::vector<int>& buckets) {
  int64_t sum = 0;
  for (const auto& [rows, steps] : step_rows) {
    const auto found = std::ranges::lower_bound(buckets, rows);
    if (found != buckets.end()) sum += steps * (*found - rows);
  }
  return sum;
}

}  // namespace nodewright
