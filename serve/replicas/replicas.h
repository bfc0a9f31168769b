// Engine loops as one: a queue in front of all, each request to the replica with the least before it
// (replica_choice.h). With one replica every request goes to its loop at once, which keeps its own queue.
//
//   Replicas replicas("demo", {.count = 2});
//   replicas.accept();
//   ... replicas.submit(call->submissions()) from any thread ...
//   replicas.run(0, engine);                // on the thread of each engine, until drained, aborted or failed
//
// A request waits here until a replica has room for it, so that none is idle while another one's requests wait. A
// replica that fails ends the requests that its engine has; the others go on, with those that it had not seen.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/schedule/turn_lines.h"
#include "serve/loop/engine_loop.h"
#include "serve/metrics/serve_metrics.h"
#include "serve/replicas/prefix_index.h"
#include "serve/replicas/replica_choice.h"

namespace nodewright {

struct ReplicaOptions {
  size_t count = 1;
  size_t most_open = 4096;  // outputs that run or wait, of all replicas together; more are not accepted
  PrefixPreference preference;
  // Each output that an engine had, on the thread of that replica; may be empty.
  std::function<void(size_t replica, const EndedOutput&)> ended;
};

// The present state of one replica.
struct ReplicaState {
  Admission admission = Admission::loading;
  SleepLevel sleep_level = SleepLevel::awake;
  size_t open = 0;      // outputs that it has and that have not ended
  int64_t tokens = 0;   // before it; 0 where there is one replica
  std::string failure;  // why it has failed
};

// Every method but run() is thread-safe. Replicas are numbered from 0.
class Replicas {
 public:
  using Ticket = EngineLoop::Ticket;

  Replicas(std::string model_name, ReplicaOptions options);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  size_t count() const { return replicas_.size(); }
  ServeMetrics& metrics(size_t replica) { return replicas_[replica]->metrics; }
  EngineLoop& loop(size_t replica) { return replicas_[replica]->loop; }
  // What EngineOptions::pages_changed of the replica's engine tells; only it knows whose prompts are cached where.
  void follow(size_t replica, std::span<const PageEvent> events) { replicas_[replica]->index.follow(events); }

  // As EngineLoop's, of all replicas. Each prompt of a call is a request of its own, with all of its outputs.
  void accept();
  EngineLoop::Submitted submit(std::vector<Submission> submissions);
  void cancel(Ticket ticket);
  Admission admission() const;  // failed: all have
  size_t open() const;
  size_t most_open() const { return options_.most_open; }
  void drain();
  void abort();
  // That replica's engine fails for this reason, before it does anything more.
  void fail(size_t replica, const std::string& reason) { replicas_[replica]->loop.fail(reason); }

  // The order goes to all replicas, and is reported once, when the last has followed (sleep_outcomes.h). What waits
  // here is shared out before a sleep begins.
  void order(SleepOrder order);
  SleepLevel sleep_level() const;  // awake where a replica is

  // All replicas change, or none: where one cannot load the adapter the others unload it, and its reason is reported.
  void change(AdapterOrder order);

  // Serves as the replica's loop: EngineLoop::run(). What waits here stays for the others; where none is left it fails.
  void run(size_t replica, Engine& engine, EngineSleep* sleep = nullptr);

  std::vector<ReplicaState> states() const;
  size_t queued() const { return queued_; }  // outputs that wait here
  std::string metrics_text() const;          // ServeMetrics::text() of all, each with its number as `engine`

 private:
  using Clock = EngineLoop::Clock;

  struct Replica {
    Replica(std::string model_name, size_t number, const LoopOptions& options)
        : metrics(std::move(model_name), static_cast<int>(number)), loop(metrics, options) {}
    ServeMetrics metrics;
    EngineLoop loop;
    PrefixIndex index;
    std::string failure;  // under mutex_
  };
  // A request that waits.
  struct Waiting {
    Ticket ticket = 0;
    Clock::time_point arrived;
    Submission submission;
    std::vector<uint64_t> hashes;  // of its prompt's pages
  };

  LoopOptions loop_options(size_t replica);
  void take_back(size_t replica, const std::string& reason, std::vector<UntakenCall> calls);

  // Under mutex_.
  Admission admission_of(size_t outputs) const;
  bool has_place(size_t outputs) const;
  bool nobody_is_left() const;
  size_t open_outputs() const;
  std::optional<size_t> choose(const Waiting& request, bool to_any) const;
  void share_out(bool to_any = false);
  static TurnLines::Item turn_of(int64_t number, const Waiting& request) {
    return {request.submission.client, static_cast<int64_t>(request.ticket), number};
  }
  void wait(int64_t number, Waiting request);
  void end_queued(EndReason reason, const std::string& message, Ticket ticket = 0);
  void note_queued(int64_t more);

  ReplicaOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  mutable std::mutex mutex_;                     // before those of the loops
  std::map<int64_t, Waiting> queue_;             // by number, in the order of arrival
  TurnLines turns_;                              // of these
  int64_t first_number_ = 0, last_number_ = -1;  // ever given
  std::atomic<size_t> queued_ = 0;               // outputs of it
  Ticket last_ticket_ = 0;
  bool accepts_ = false, draining_ = false;
  Delivery delivery_{[](double) { return; }};  // of what ends in the queue; last: it delivers before the rest goes
};

}  // namespace nodewright
