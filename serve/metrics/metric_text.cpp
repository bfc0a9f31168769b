#include "serve/metrics/metric_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>

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

std::string merged_pages(std::span<const std::string> pages) {
  constexpr std::string_view kHelp = "# HELP ";
  struct Block {
    std::string head, lines;
  };
  std::vector<Block> blocks;
  std::map<std::string, size_t, std::less<>> places;  // by name
  for (const std::string& page : pages) {
    size_t place = 0;
    for (size_t begin = 0; begin < page.size();) {
      const size_t end = std::min(page.find('\n', begin), page.size() - 1) + 1;
      const std::string_view line(page.data() + begin, end - begin);
      begin = end;
      if (line.starts_with(kHelp)) {
        const std::string_view name = line.substr(kHelp.size(), line.find(' ', kHelp.size()) - kHelp.size());
        const auto [found, is_new] = places.try_emplace(std::string(name), blocks.size());
        if (is_new) blocks.emplace_back();
        place = found->second;
      }
      Block& block = blocks.at(place);
      if (!line.starts_with('#'))
        block.lines += line;
      else if (block.lines.empty() && block.head.find(line) == std::string::npos)
        block.head += line;
    }
  }
  std::string text;
  for (const Block& block : blocks) text += block.head + block.lines;
  return text;
}

}  // namespace nodewright
