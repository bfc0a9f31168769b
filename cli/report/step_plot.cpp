#include "cli/report/step_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <vector>

namespace nodewright::cli {
namespace {

constexpr double kLeft = 70, kWidth = 820, kHeight = 150, kGap = 60, kTop = 50;  // pixels
constexpr size_t kMostDots = 3000;
constexpr const char* kDecode = "#2b6cb0";
constexpr const char* kPrompt = "#c05621";
constexpr const char* kNoGraph = "#c53030";

// "<" and "&" of names.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

// A frame with a title, and the values at its lower and upper edge.
class Panel {
 public:
  Panel(std::string& svg, int index, const std::string& title, double most_x, double most_y)
      : svg_(svg),
        top_(kTop + index * (kHeight + kGap)),
        most_x_(std::max(most_x, 1e-9)),
        most_y_(std::max(most_y, 1e-9)) {
    add(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="none" stroke="#a0aec0"/>)", kLeft, top_, kWidth, kHeight);
    add(R"(<text x="{}" y="{}">{}</text>)", kLeft, top_ - 8, escaped(title));
    add(R"(<text x="{}" y="{}" text-anchor="end">{:.0f}</text>)", kLeft - 6, top_ + 10, most_y_);
    add(R"(<text x="{}" y="{}" text-anchor="end">0</text>)", kLeft - 6, top_ + kHeight);
    add(R"(<text x="{}" y="{}" text-anchor="end">{:.0f}</text>)", kLeft + kWidth, top_ + kHeight + 16, most_x_);
  }

  void dot(double x, double y, const char* color) {
    add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="1.5" fill="{}"/>)", at_x(x), at_y(y), color);
  }
  void bar(double from, double to, double y, const char* color) {
    add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)", at_x(from), at_y(y),
        std::max(1.0, at_x(to) - at_x(from)), top_ + kHeight - at_y(y), color);
  }
  void mark(double x) {
    add(R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}" stroke="#718096" stroke-dasharray="3 3"/>)", at_x(x), top_,
        top_ + kHeight);
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
    svg_ += '\n';
  }
  double at_x(double x) const { return kLeft + kWidth * std::min(1.0, x / most_x_); }
  double at_y(double y) const { return top_ + kHeight * (1 - std::min(1.0, y / most_y_)); }

  std::string& svg_;
  double top_, most_x_, most_y_;
};

const char* color_of(const StepRecord& step) {
  if (step.run != "graph") return kNoGraph;
  return step.prompt_tokens > 0 ? kPrompt : kDecode;
}

// A long log is thinned: each group of steps is drawn as the one that took longest.
std::vector<const StepRecord*> drawn(const std::vector<StepRecord>& steps) {
  const size_t stride = (steps.size() + kMostDots - 1) / kMostDots;
  std::vector<const StepRecord*> chosen;
  for (size_t i = 0; i < steps.size(); i += stride) {
    const auto first = steps.begin() + static_cast<std::ptrdiff_t>(i);
    const auto last = steps.begin() + static_cast<std::ptrdiff_t>(std::min(i + stride, steps.size()));
    chosen.push_back(
        &*std::max_element(first, last, [](const StepRecord& a, const StepRecord& b) { return a.us < b.us; }));
  }
  return chosen;
}

}  // namespace

std::string step_plot(const StepLog& log, const StepReport& report) {
  constexpr int kPanels = 4;
  const double height = kTop + kPanels * (kHeight + kGap);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>)"
      "\n",
      kLeft + kWidth + 30, height);
  svg += fmt::format(R"(<text x="{}" y="20" font-size="14">{}</text>)"
                     "\n",
                     kLeft,
                     escaped(fmt::format("{} steps of {} on {}, {}", log.steps.size(), log.head.model, log.head.device,
                                         log.head.date)));
  if (!log.steps.empty()) {
    const std::vector<const StepRecord*> steps = drawn(log.steps);
    const auto last = static_cast<double>(log.steps.back().step);
    const auto most = [&](const std::function<double(const StepRecord&)>& value) {
      double result = 0;
      for (const StepRecord& step : log.steps) result = std::max(result, value(step));
      return result;
    };
    const auto over_steps = [&](int index, const char* title, const std::function<double(const StepRecord&)>& value) {
      Panel panel(svg, index, title, last, most(value));
      for (const StepRecord* step : steps) panel.dot(static_cast<double>(step->step), value(*step), color_of(*step));
    };
    over_steps(0, "us of each step (blue: decode, orange: with prompts, red: no graph)",
               [](const StepRecord& step) { return step.us; });
    over_steps(1, "rows of each step", [](const StepRecord& step) { return static_cast<double>(step.rows()); });
    over_steps(2, "requests that wait behind each step",
               [](const StepRecord& step) { return static_cast<double>(step.waiting); });
    int64_t most_steps = 0;
    for (const auto& [rows, count] : report.step_rows) most_steps = std::max(most_steps, count);
    const double most_rows = report.step_rows.rbegin()->first + 1.0;
    Panel panel(svg, 3, "steps by rows (dashed: the buckets that ran)", most_rows, static_cast<double>(most_steps));
    for (const auto& [rows, count] : report.step_rows) panel.bar(rows, rows + 0.9, static_cast<double>(count), kDecode);
    for (const int bucket : report.used) panel.mark(bucket + 0.95);
  }
  return svg + "</svg>\n";
}

}  // namespace nodewright::cli
