#include "cli/report/step_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "bench/spread.h"
#include "engine/engine_report.h"

namespace nodewright::cli {
namespace {

std::string share_of(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string group_line(const std::string& name, const StepGroup& group) {
  const Tail us = tail_of(group.us);
  const auto steps = static_cast<double>(std::max<int64_t>(1, group.steps));
  return fmt::format("{:<12} {:>8} {:>8} {:>8} {:>8} {:>10.1f} {:>8} {:>10.1f} {:>10.1f} {:>10.1f}\n", name,
                     group.steps, share_of(group.exact, group.steps), share_of(group.padded, group.steps),
                     share_of(group.without_graph, group.steps), static_cast<double>(group.rows) / steps,
                     share_of(group.computed_rows - group.rows, group.computed_rows), us.median, us.p99, us.worst);
}

// A line a bin, with a bar as long as its share of the largest.
std::string histogram(const std::vector<std::pair<std::string, int64_t>>& bins) {
  constexpr double kWidth = 50;
  int64_t most = 1;
  for (const auto& [name, steps] : bins) most = std::max(most, steps);
  std::string text;
  for (const auto& [name, steps] : bins) {
    const double length = std::ceil(kWidth * static_cast<double>(steps) / static_cast<double>(most));
    text += fmt::format("{:<12} {:>8} {}\n", name, steps, std::string(static_cast<size_t>(length), '#'));
  }
  return text;
}

// 1, 2 to 3, 4 to 7, ...
std::string rows_histogram(const std::map<int, int64_t>& step_rows) {
  std::map<int, int64_t> by_octave;
  for (const auto& [rows, steps] : step_rows) by_octave[std::bit_width(static_cast<unsigned>(rows)) - 1] += steps;
  std::vector<std::pair<std::string, int64_t>> bins;
  for (int octave = by_octave.begin()->first; octave <= by_octave.rbegin()->first; ++octave) {
    const int first = 1 << octave, last = 2 * first - 1;
    bins.emplace_back(first == last ? "1" : fmt::format("{} to {}", first, last), by_octave[octave]);
  }
  return histogram(bins);
}

// Bins of equal ratio between the shortest step and the longest.
std::string us_histogram(const std::vector<double>& us) {
  constexpr size_t kBins = 12;
  const auto [least, most] = std::ranges::minmax(us);
  const double low = std::max(least, 0.1), ratio = std::log(std::max(most, low) / low) / kBins;
  std::vector<int64_t> counts(kBins);
  for (const double value : us) {
    const double bin = ratio > 0 ? std::floor(std::log(std::max(value, low) / low) / ratio) : 0;
    ++counts[std::min(kBins - 1, static_cast<size_t>(bin))];
  }
  std::vector<std::pair<std::string, int64_t>> bins;
  for (size_t i = 0; i < (ratio > 0 ? kBins : 1); ++i)
    bins.emplace_back(fmt::format("{:.0f}", low * std::exp(ratio * static_cast<double>(i))) + " up", counts[i]);
  return histogram(bins);
}

// The largest bucket there was is kept, though no step may have needed it: the next one may.
std::vector<int> suggested_for(const StepReport& report, const StepLogHead& head, size_t count) {
  if (report.step_rows.empty()) return {};
  const int largest = head.buckets.empty() ? 0 : head.buckets.back();
  const bool unused = largest > report.step_rows.rbegin()->first;
  std::vector<int> sizes = suggest_buckets(report.step_rows, count == 0 ? report.used.size() : count - unused);
  if (unused) sizes.push_back(largest);
  return sizes;
}

}  // namespace

void StepGroup::add(const StepRecord& step) {
  ++steps;
  ++(step.run != "graph" ? without_graph : step.padding() == 0 ? exact : padded);
  rows += step.rows();
  computed_rows += step.bucket;
  us.push_back(step.us);
}

StepReport report_of(const StepLog& log, size_t count) {
  StepReport report{.least_free_pages = log.steps.empty() ? 0 : std::numeric_limits<int64_t>::max()};
  double waiting = 0;
  for (const StepRecord& step : log.steps) {
    (step.prompt_tokens > 0 ? report.with_prompts : report.decode).add(step);
    report.all.add(step);
    report.buckets[step.bucket].add(step);
    if (step.run != "graph") ++report.reasons[step.reason];
    ++report.step_rows[static_cast<int>(step.rows())];
    report.prompt_tokens += step.prompt_tokens;
    report.decode_rows += step.decode_rows;
    report.drafts += step.drafts;
    report.seconds += step.us * 1e-6;
    waiting += static_cast<double>(step.waiting);
    report.most_waiting = std::max(report.most_waiting, step.waiting);
    report.least_free_pages = std::min(report.least_free_pages, step.free_pages);
  }
  if (!log.steps.empty()) report.mean_waiting = waiting / static_cast<double>(log.steps.size());
  for (const auto& [bucket, group] : report.buckets) report.used.push_back(static_cast<int>(bucket));
  report.suggested = suggested_for(report, log.head, count);
  report.suggested_padding = padding_of(report.step_rows, report.suggested);
  return report;
}

std::string to_text(const StepReport& report, const StepLogHead& head) {
  std::string text = fmt::format("{} steps of {} on {}, {}\n", report.all.steps, head.model, head.device, head.date);
  text += fmt::format("at most {} requests at once and {} prompt tokens a step; buckets {}\n", head.max_batch,
                      head.step_tokens, fmt::join(head.buckets, ","));
  if (report.all.steps == 0) return text;
  text += fmt::format("\n{:<12} {:>8} {:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>10} {:>10}\n", "", "steps", "exact",
                      "padded", "no graph", "rows", "padding", "us median", "p99", "worst");
  text += group_line("decode", report.decode) + group_line("with prompts", report.with_prompts);
  text += group_line("all", report.all);
  for (const auto& [reason, steps] : report.reasons) text += fmt::format("no graph: {} steps, {}\n", steps, reason);

  text += "\nby the rows that were computed\n";
  for (const auto& [bucket, group] : report.buckets) text += group_line(std::to_string(bucket), group);
  text += fmt::format("\nbuckets      {} pad {} rows\n", fmt::join(report.used, ","),
                      report.all.computed_rows - report.all.rows);
  text +=
      fmt::format("suggested    {} would have padded {}: --buckets {}\n",
                  report.suggested.size() == report.used.size() ? "as many" : std::to_string(report.suggested.size()),
                  report.suggested_padding, fmt::join(report.suggested, ","));

  text += "\nsteps by rows\n" + rows_histogram(report.step_rows);
  text += "\nsteps by us\n" + us_histogram(report.all.us);
  text += fmt::format("\ntokens       {} of prompts and {} rows that decode in {:.3f} s of steps, {} of them drafts\n",
                      report.prompt_tokens, report.decode_rows, report.seconds, report.drafts);
  return text + fmt::format("queue        {:.1f} requests in the mean, {} at most; {} of {} pages free at least\n",
                            report.mean_waiting, report.most_waiting, report.least_free_pages, head.pages);
}

}  // namespace nodewright::cli
