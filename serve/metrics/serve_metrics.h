// What a server counts, as /metrics shows it: vLLM's names, which dashboards and routers read, and nodewright_graph_*
// for what only explicit graphs have. docs/serving.md lists them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "serve/metrics/metric_text.h"

namespace nodewright {

// Of an output that has ended. Seconds; those that never came to be are negative.
struct OutputTimes {
  double queued = -1;   // from arrival to admission
  double prefill = -1;  // from admission to the first token
  double decode = -1;   // from the first token to the last
  double whole = 0;     // from arrival to the end
  int64_t prompt_tokens = 0, tokens = 0;
};

// Thread-safe.
class ServeMetrics {
 public:
  explicit ServeMetrics(std::string model_name);

  // Told by the engine's thread.
  void first_token(double seconds_since_arrival);
  void more_tokens(double seconds_since_the_last, int64_t tokens);
  void ended(EndReason reason, const OutputTimes& times);
  void refused();
  void stepped(const StepRecord& step);
  void see(const Engine& engine);  // its counters and gauges, as they are now

  // Told by the delivery thread: from a step's tokens until their events wait for their sockets.
  void delivered(double seconds);

  // Told by the server.
  void answered(int status);

  // The page, in Prometheus's text format 0.0.4.
  std::string text() const;

 private:
  // Of the engine when it was seen last.
  struct Seen {
    EngineStats stats;
    KvPool::Stats pool;
    int64_t running = 0, waiting = 0, preemptions = 0;
    int64_t pages = 0, owned_pages = 0, cached_pages = 0, page_tokens = 0;
    double graph_build_ms = 0;
    int64_t graphs = 0;
    MemoryUse memory;
  };

  void add_engine(MetricText& out) const;
  void add_requests(MetricText& out) const;
  void add_graphs(MetricText& out) const;

  std::string model_name_;
  mutable std::mutex mutex_;
  Seen seen_;
  std::map<std::string, int64_t, std::less<>> ends_;  // by vLLM's finish reasons
  std::map<int, int64_t> answers_;                    // by status
  int64_t refused_ = 0;
  Histogram first_token_, between_tokens_, per_token_, whole_, queued_, prefill_, decode_, inference_;
  Histogram prompt_tokens_, generation_tokens_, step_tokens_, step_seconds_, delivery_;
};

}  // namespace nodewright
