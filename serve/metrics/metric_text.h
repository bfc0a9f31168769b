// Prometheus's text format, and the two kinds of metric that need more than a number. Knows no engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nodewright {

// Labels in their order: {"model_name", "demo"}.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Observations by upper bounds. Not thread-safe.
class Histogram {
 public:
  // `bounds`: ascending, without infinity.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size()) {}

  void observe(double value, int64_t times = 1);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  const std::vector<double>& bounds() const { return bounds_; }
  // The count of values at or below bound i.
  int64_t up_to(size_t i) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // of those above bound i - 1, up to bound i
  int64_t count_ = 0;
  double sum_ = 0;
};

// A page of metrics: # HELP and # TYPE once for each name, which must come one after the other.
class MetricText {
 public:
  // `labels`: of every line.
  explicit MetricText(MetricLabels labels) : labels_(std::move(labels)) {}

  void gauge(std::string_view name, std::string_view help, double value, const MetricLabels& more = {});
  void counter(std::string_view name, std::string_view help, double value, const MetricLabels& more = {});
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type);
  void line(std::string_view name, double value, const MetricLabels& more);

  MetricLabels labels_;
  std::string last_name_, text_;
};

// Several pages as one: each name with its # HELP and # TYPE once, as the first page that has it has them,
// then the lines of all pages.
std::string merged_pages(std::span<const std::string> pages);

}  // namespace nodewright
