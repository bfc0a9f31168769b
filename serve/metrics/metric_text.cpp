#include "serve/metrics/metric_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace nodewright {

void Histogram::observe(double value, int64_t times) {
  const auto place = std::ranges::lower_bound(bounds_, value);
  if (place != bounds_.end()) counts_[static_cast<size_t>(place - bounds_.begin())] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

int64_t Histogram::up_to(size_t i) const {
  int64_t sum = 0;
  for (size_t j = 0; j <= i; ++j) sum += counts_[j];
  return sum;
}

void MetricText::head(std::string_view name, std::string_view help, std::string_view type) {
  if (name == last_name_) return;
  last_name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricText::line(std::string_view name, double value, const MetricLabels& more) {
  text_ += name;
  char before = '{';
  for (const MetricLabels* labels : std::initializer_list<const MetricLabels*>{&labels_, &more})
    for (const auto& [label, word] : *labels) {
      text_ += before;
      text_ += label;
      text_ += "=\"";
      for (const char c : word) {
        if (c == '\\' || c == '"') text_ += '\\';
        if (c == '\n')
          text_ += "\\n";
        else
          text_ += c;
      }
      text_ += '"';
      before = ',';
    }
  if (before == ',') text_ += '}';
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void MetricText::gauge(std::string_view name, std::string_view help, double value, const MetricLabels& more) {
  head(name, help, "gauge");
  line(name, value, more);
}

void MetricText::counter(std::string_view name, std::string_view help, double value, const MetricLabels& more) {
  head(name, help, "counter");
  line(name, value, more);
}

void MetricText::histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
  head(name, help, "histogram");
  const std::string bucket = fmt::format("{}_bucket", name);
  for (size_t i = 0; i < histogram.bounds().size(); ++i)
    line(bucket, static_cast<double>(histogram.up_to(i)), {{"le", fmt::format("{}", histogram.bounds()[i])}});
  line(bucket, static_cast<double>(histogram.count()), {{"le", "+Inf"}});
  line(fmt::format("{}_sum", name), histogram.sum(), {});
  line(fmt::format("{}_count", name), static_cast<double>(histogram.count()), {});
}

}  // namespace nodewright
