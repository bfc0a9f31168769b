// Prometheus's text format: what a scraper reads, to the letter.
#include "serve/metrics/metric_text.h"

#include <gtest/gtest.h>

#include <array>

namespace nodewright {
namespace {

TEST(MetricText, HelpAndTypeComeOnceForAName) {
  MetricText text(MetricLabels{{"model_name", "a\"b\\c\nd"}});
  text.counter("x_total", "Things", 3, {{"kind", "one"}});
  text.counter("x_total", "", 4.5, {{"kind", "two"}});
  text.gauge("y", "Now", 1e9);
  EXPECT_EQ(text.text(),
            "# HELP x_total Things\n# TYPE x_total counter\n"
            "x_total{model_name=\"a\\\"b\\\\c\\nd\",kind=\"one\"} 3\n"
            "x_total{model_name=\"a\\\"b\\\\c\\nd\",kind=\"two\"} 4.5\n"
            "# HELP y Now\n# TYPE y gauge\ny{model_name=\"a\\\"b\\\\c\\nd\"} 1000000000\n");
}

TEST(MetricText, BucketsOfAHistogramAddUp) {
  Histogram histogram(std::array{0.5, 1.0, 2.0});
  histogram.observe(0.5);     // at a bound: below it
  histogram.observe(1.5, 3);  // three at once
  histogram.observe(9);
  MetricText text(MetricLabels{});
  text.histogram("t_seconds", "Times", histogram);
  EXPECT_EQ(text.text(),
            "# HELP t_seconds Times\n# TYPE t_seconds histogram\n"
            "t_seconds_bucket{le=\"0.5\"} 1\nt_seconds_bucket{le=\"1\"} 1\nt_seconds_bucket{le=\"2\"} 4\n"
            "t_seconds_bucket{le=\"+Inf\"} 5\nt_seconds_sum 14\nt_seconds_count 5\n");
}

TEST(MetricText, PagesOfSeveralEnginesHaveEachNameOnce) {
  MetricText first(MetricLabels{{"engine", "0"}}), second(MetricLabels{{"engine", "1"}});
  first.gauge("a", "First", 1);
  first.gauge("only", "Of the first", 2);
  second.gauge("a", "First", 3);
  second.counter("b", "Of the second", 4, {{"kind", "x"}});
  second.counter("b", "", 5, {{"kind", "y"}});
  const std::array pages{first.text(), second.text()};
  EXPECT_EQ(merged_pages(pages),
            "# HELP a First\n# TYPE a gauge\na{engine=\"0\"} 1\na{engine=\"1\"} 3\n"
            "# HELP only Of the first\n# TYPE only gauge\nonly{engine=\"0\"} 2\n"
            "# HELP b Of the second\n# TYPE b counter\nb{engine=\"1\",kind=\"x\"} 4\nb{engine=\"1\",kind=\"y\"} 5\n");
  EXPECT_EQ(merged_pages(std::span(pages).first(1)), first.text());
  EXPECT_EQ(merged_pages({}), "");
}

}  // namespace
}  // namespace nodewright
