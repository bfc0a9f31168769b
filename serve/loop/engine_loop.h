// One thread's engine behind a queue that every thread may fill: submissions in, updates to their listeners out.
//
//   EngineLoop loop(metrics, {});
//   loop.accept();
//   ... loop.submit(call->submissions()) from any thread ...
//   loop.run(engine);                       // on the thread that owns the engine, until drained, aborted or failed
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/loop/adapter_order.h"
#include "serve/loop/delivery.h"
#include "serve/loop/loop_load.h"
#include "serve/loop/open_calls.h"
#include "serve/loop/sleep_order.h"
#include "serve/loop/submission.h"
#include "serve/metrics/serve_metrics.h"

namespace nodewright {

// An output that has ended, and when it got so far.
struct EndedOutput {
  using Time = std::chrono::steady_clock::time_point;
  RequestId request = 0;
  EndReason reason = EndReason::length;
  Time arrived, ended;
  std::optional<Time> admitted, first_token, last_token;  // where it came to them
  int64_t prompt_tokens = 0, found_tokens = 0;            // of the prompt, and of those in the cache
  int64_t tokens = 0;                                     // of the output
};

// A call that a loop has accepted and its engine has not seen.
struct UntakenCall {
  uint64_t ticket = 0;
  std::vector<Submission> submissions;
  std::chrono::steady_clock::time_point arrived;
};

struct LoopOptions {
  size_t most_open = 4096;                        // outputs that run or wait; more are not accepted (open_calls.h)
  std::function<void(const EndedOutput&)> ended;  // each output that the engine had, on run()'s thread; may be empty
  // load() is up to date: after each thing that the engine did, on run()'s thread, which holds no lock. Empty: nobody
  // asks for load(), and none is kept.
  std::function<void()> loaded;
  // The engine has failed for this reason before it saw these calls, which are somebody else's from now on: on run()'s
  // thread, once. Empty: they fail with it.
  std::function<void(const std::string& reason, std::vector<UntakenCall>)> untaken;
};

// Asleep: from the moment that a sleep is ordered until the engine is awake again.
enum class Admission { accepted, full, loading, asleep, draining, failed };

// Every method but run() is thread-safe.
class EngineLoop {
 public:
  using Ticket = uint64_t;
  using Clock = std::chrono::steady_clock;

  // `metrics` must outlive this.
  EngineLoop(ServeMetrics& metrics, const LoopOptions& options) : metrics_(metrics), options_(options) {}

  // From now on calls are taken; run() must follow. Before it, admission() is `loading`.
  void accept();

  // All submissions of one call, or none. Accepted: each of their outputs gets one last update, or their listener is
  // told that they are refused.
  struct Submitted {
    Admission admission = Admission::accepted;
    Ticket ticket = 0;
  };
  Submitted submit(std::vector<Submission> submissions);
  // The same for a caller that numbers tickets for several loops, with the call's time of arrival. A refused request
  // stays the caller's.
  Admission submit(std::vector<Submission>& submissions, Ticket ticket, Clock::time_point arrived);
  // The outputs of the call that have not ended end as cancelled, before the next step is launched.
  void cancel(Ticket ticket);

  // What submit() would say now.
  Admission admission() const;
  size_t open() const;  // outputs that were accepted and have not ended
  // Those of each call are added to `calls`.
  void add_open(OpenCalls& calls) const;
  // What they have before them. Only with LoopOptions::loaded.
  LoopLoad load() const;

  // Puts the engine to sleep or wakes it, on the engine's thread, one order after the other: `order.told` is called
  // there, or at once where the loop is not serving. From now on a sleep lets nothing new in; it is done when what is
  // open has ended, unless a wake calls it off before.
  void order(SleepOrder order);
  SleepLevel sleep_level() const;  // of the engine now

  // Loads or unloads an adapter of the engine, on its thread between two steps: `order.told` is called there, or at
  // once where the loop is not serving.
  void change(AdapterOrder order);

  // Takes no more, and run() returns when everything has ended. With abort() what is open is cancelled.
  void drain();
  void abort();
  // The engine fails for this reason, before it does anything more.
  void fail(const std::string& reason);

  // Serves until drained, or until the engine fails: then throws Error with the engine's message. Either way every
  // listener has been told, and nothing holds one, when it returns. On the engine's thread; once. `sleep`: of `engine`;
  // without it orders fail.
  void run(Engine& engine, EngineSleep* sleep = nullptr);

 private:
  // An output that the engine has.
  struct Output {
    Ticket ticket = 0;
    int index = 0;
    std::shared_ptr<Listener> listener;
    std::shared_ptr<StopStrings> stops;
    size_t told = 0;  // bytes of the text of one with stop strings
    EndedOutput so_far;
  };
  // The updates of one step.
  using Updates = std::map<RequestId, OutputUpdate>;

  Admission admission_of(size_t outputs) const;  // under mutex_
  std::string serve(Engine& engine);
  // False when there is nothing left to do, ever.
  bool take_calls(Engine& engine, bool wait);
  void submit(Engine& engine, UntakenCall call);
  void cancel_open(Engine& engine, const std::vector<Ticket>& tickets, bool all);
  void note_admissions(const Engine& engine);
  void give_updates(Engine& engine);
  void take_tokens(Engine& engine, Updates& updates);
  void note_end(Output& output, EndReason reason);
  void close_outputs(Ticket ticket, size_t outputs);
  void end_all(const std::string& reason);
  void note_load(const Engine& engine);

  // engine_loop_sleep.cpp
  void follow_orders(Engine& engine);
  void abort_for_sleep(Engine& engine);
  void tell(const SleepOrder& order, SleepOutcome outcome);
  void refuse_orders();

  // engine_loop_adapters.cpp
  void follow_adapter_orders(Engine& engine, std::vector<AdapterOrder> orders);

  ServeMetrics& metrics_;
  LoopOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<UntakenCall> calls_;
  std::vector<Ticket> cancelled_;
  Ticket last_ticket_ = 0;
  OpenCalls open_;  // their outputs that have not ended
  LoopLoad load_;   // what the engine has not seen yet included
  bool accepts_ = false, draining_ = false, aborted_ = false, failed_ = false;
  std::vector<SleepOrder> new_orders_;
  std::vector<AdapterOrder> adapter_orders_;
  std::string failure_;  // of fail(); empty: none
  bool rests_ = false;   // a sleep is ordered or done, and no wake has ended it
  SleepLevel sleep_level_ = SleepLevel::awake;

  // Used on run()'s thread alone.
  std::map<RequestId, Output> outputs_;
  std::map<Ticket, RequestId> first_of_call_;  // of calls with open outputs
  Clock::time_point seen_{};
  EngineSleep* sleep_ = nullptr;
  std::deque<SleepOrder> orders_;     // taken, oldest first
  bool cancelled_for_sleep_ = false;  // what is cancelled now is so for an order's sake
  Delivery delivery_{
      [this](double seconds) { metrics_.delivered(seconds); }};  // last: it delivers before the rest goes
};

}  // namespace nodewright
