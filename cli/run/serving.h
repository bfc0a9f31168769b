// Serves request lines with an engine until their source has ended and each has its results. Lines that come while
// others are served join the batch.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "cli/output/progress_bar.h"
#include "cli/run/line_source.h"
#include "cli/run/result_lines.h"
#include "engine/engine.h"

namespace nodewright::cli {

struct ServingOptions {
  std::optional<double> rate;  // lines a second, at random times; none: as they come
  uint64_t seed = 0;           // of those times
  bool times = false;          // each token's is kept for print_summary()
};

class Serving {
 public:
  // `first`: lines that were taken from the source before. All of these must outlive this.
  Serving(Engine& engine, LineSource& source, std::vector<RequestLine> first, ResultLines& results,
          const ServingOptions& options);

  // Until everything has its result. After an interruption, or when nobody takes results any more, what is left is
  // cancelled.
  void run();

  // Times and counts, to stderr.
  void print_summary() const;

 private:
  using Clock = std::chrono::steady_clock;

  void take_lines(std::vector<RequestLine> lines);
  void submit_due();
  void submit(RequestLine line, Clock::time_point due);
  void submit_batch(const RequestLine& line, Clock::time_point due);
  void end_of_batch(LineOutput& output, const Resolution& end);
  // Its outputs that go on are nobody's.
  void cancel_batch(const BatchCall& batch);
  void take_tokens();
  void take_ends();
  void cancel_all();
  void show_progress();

  Engine& engine_;
  LineSource& source_;
  ResultLines& results_;
  std::optional<std::exponential_distribution<double>> gap_;  // seconds between arrivals
  std::mt19937_64 random_;
  std::deque<std::pair<RequestLine, Clock::time_point>> waiting_;  // for their time, in that order
  std::map<RequestId, std::unique_ptr<LineOutput>> open_;
  int64_t outputs_ = 0;  // asked for by all lines so far
  bool keeps_times_, cancelled_ = false;
  Clock::time_point start_, last_arrival_;
  double seconds_ = 0;
  std::vector<double> first_ms_, next_ms_;
  ProgressBar progress_;
};

}  // namespace nodewright::cli
