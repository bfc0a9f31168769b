// What a server counts, as /metrics shows it: vLLM's names, which dashboards and routers read, and nodewright_graph_*
// for what only explicit graphs have. docs/serving.md lists them. /live shows the same to the server's own page.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sleep.h"
#include "serve/metrics/metric_text.h"
#include "serve/metrics/model_card.h"
#include "serve/metrics/recent_times.h"

namespace nodewright {

// Times of an ended output. Seconds; negative where the event never came.
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
  // `engine`: its number, a label of every line.
  explicit ServeMetrics(std::string model_name, int engine = 0);

  // Told by the engine's thread.
  void first_token(double seconds_since_arrival);
  void more_tokens(double seconds_since_the_last, int64_t tokens);
  void ended(EndReason reason, const OutputTimes& times);
  void refused();
  void stepped(const StepRecord& step);
  void published(bool taken);      // a batch of KV events: false: it was dropped
  void see(const Engine& engine);  // its counters and gauges, as they are now
  void slept(SleepLevel level);    // of the engine now

  // Told by the delivery thread: from a step's tokens until their events wait for their sockets.
  void delivered(double seconds);

  // Told by the server. `card`: of the model, once it is there.
  void answered(int status);
  void serves(ModelCard card);
  // Called on the first of several engines' metrics: outputs that wait in front of all engines, now.
  void queued(int64_t outputs);

  // The page, in Prometheus's text format 0.0.4.
  std::string text() const;

  // The same as JSON for the page's live view: counters since the start, gauges, and times of the last ten seconds
  // (recent_times.h: no more than the last 4096).
  //   {"seconds", "state", "model": null or {"name", "device", "weights", "numerics", "mode", "tuning", "context",
  //    "rows", "chat", "tokenizer", "defaults": {"temperature", "top_p", "top_k", "min_p", "seed": null or a number}},
  //    "requests": {"running", "waiting", "preemptions", "refused", "ended": {reason:
  //    n}}, "tokens": {"prompt", "generated", "drafted", "accepted_drafts"}, "pages": {"all", "owned", "cached",
  //    "tokens"}, "prefix_cache": {"asked", "found"}, "memory": {"weights", "state", "graphs", "pages"}, "graphs":
  //    {"count", "build_ms", "padded_rows", "buckets": [rows of those with a plan],
  //               "launches": [{"bucket", "form", "steps", "rows", "exact"}], "fallbacks": [{"reason", "steps"}]},
  //    "recent": {"window_s", "first_token": times, "between_tokens": times}}
  // "seconds" is the server's age; times are {"count", "median_ms", "p99_ms"}, null without any. Memory is in bytes,
  // "asked" and "found" in tokens of prompts. `state`: a word for whether calls are taken.
  std::string live_json(std::string_view state) const { return live_json(state, std::vector{this}); }
  // The same of several engines, whose counters, gauges and times are taken together; card, buckets and age are the
  // first's. With `replicas`, a JSON array, as "replicas".
  static std::string live_json(std::string_view state, std::span<const ServeMetrics* const> engines,
                               const std::string& replicas = {});

 private:
  // The engine's state when it was read last.
  struct Seen {
    EngineStats stats;
    KvPool::Stats pool;
    int64_t running = 0, waiting = 0, preemptions = 0;
    int64_t pages = 0, owned_pages = 0, cached_pages = 0, page_tokens = 0;
    bool cache_is_fp8 = false;
    double graph_build_ms = 0;
    int64_t graphs = 0;
    MemoryUse memory;
    double at = 0;                                             // Unix seconds
    int max_adapters = 0;                                      // 0: there are none
    std::set<std::string> running_adapters, waiting_adapters;  // names, of requests
  };

  struct Snapshot {
    std::optional<ModelCard> card;
    Seen seen;
    std::map<std::string, int64_t, std::less<>> ends;
    int64_t refused = 0;
    RecentTimes first, between;
    void add(const Snapshot& other);
  };
  Snapshot snapshot() const;

  void add_engine(MetricText& out) const;
  void add_requests(MetricText& out) const;
  void add_graphs(MetricText& out) const;

  std::string model_name_;
  int engine_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::optional<ModelCard> card_;
  Seen seen_;
  SleepLevel sleep_level_ = SleepLevel::awake;
  std::map<std::string, int64_t, std::less<>> ends_;  // by vLLM's finish reasons
  std::map<int, int64_t> answers_;                    // by status
  int64_t refused_ = 0;
  std::optional<int64_t> before_all_;  // of queued()
  int64_t kv_batches_ = 0, dropped_kv_batches_ = 0;
  Histogram first_token_, between_tokens_, per_token_, whole_, queued_, prefill_, decode_, inference_;
  Histogram prompt_tokens_, generation_tokens_, step_tokens_, step_seconds_, delivery_;
  RecentTimes recent_first_, recent_between_;
};

}  // namespace nodewright
