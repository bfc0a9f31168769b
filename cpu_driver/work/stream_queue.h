// Streams, events and the executor: queued operations that wait until a synchronising call asks for them. All of it
// under the driver's lock, which is given up while an operation runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu_driver/cuda_names.h"
#include "cpu_driver/work/work.h"
#include "runtime/calls/cpu_driver_api.h"

namespace nodewright::cpu {

class GraphRun;
class WorkerPool;
struct Capture;
struct CaptureTip;
struct Stream;
struct GraphExec;

// What came of a turn: blocked ran nothing, since all that may run waits for a value or a semaphore.
enum class Progress : uint8_t { blocked, ran, finished };

// The end of one operation. Shared by the operation, events recorded after it and those who wait.
struct Completion {
  bool done = false;
  double at_ms = 0;          // on a clock of the driver's own
  Stream* stream = nullptr;  // whose queue holds the operation, while it does
};
using CompletionRef = std::shared_ptr<Completion>;

class PeerLaunch;

// How far a piece of work has come that could not end at once.
struct WorkState {
  size_t done = 0;                     // operations, of values and semaphores
  std::shared_ptr<PeerLaunch> launch;  // of a kernel that meets peers
};

struct Operation {
  uint64_t serial = 0;  // order of the calls, over all streams
  std::vector<CompletionRef> after;
  CompletionRef done = std::make_shared<Completion>();
  Work work;
  WorkState at;                        // of `work`
  std::shared_ptr<GraphRun> run;       // instead of `work`: a graph launch
  std::vector<CompletionRef> records;  // of its event record nodes: done with the operation at the latest
};

struct Stream {
  CUstream handle = nullptr;
  CUcontext context = nullptr;  // null for the legacy default stream, which is every context's
  unsigned flags = 0;
  std::deque<Operation> queue;
  CompletionRef last;  // of the newest operation
  std::shared_ptr<Capture> capture;
  std::vector<CaptureTip> tips;  // what the next captured node depends on
};

struct Event {
  CUevent handle = nullptr;
  CUcontext context = nullptr;
  bool timing = true;
  CompletionRef recorded;  // null: never recorded
  std::shared_ptr<Capture> capture;
  std::vector<CaptureTip> tips;
};

// One thread that runs operations, with the worker pool at hand. Only as far as callers ask.
class Executor {
 public:
  explicit Executor(State& state);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  using Lock = std::unique_lock<std::mutex>;

  // Queues on `stream`; runs it at once when execution is not deferred.
  CompletionRef enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Operation operation);
  // Each returns the sticky error, if there is one by then.
  CUresult wait_for(Lock& lock, CompletionRef completion);
  CUresult wait_for_all(Lock& lock);
  // Waits for what the legacy default stream waits for: its own work and that of blocking streams.
  CUresult wait_for_blocking(Lock& lock);
  // One operation, or one node of a graph, runs: queries advance deferred work. Returns also while it still runs, when
  // that takes long.
  CUresult advance(Lock& lock, CompletionRef towards);

 private:
  struct Demand {
    CompletionRef target;  // null: everything
    bool one_step = false;
    bool at_launch = false;  // of the caller that launches: whatever it waits for may be launched next
    bool met = false;
    bool given_up = false;  // nobody waits for it
  };

  void main(int workers, uint64_t timeout_ms);
  std::shared_ptr<Demand> make_demand(Demand demand);
  bool satisfied(const Demand& demand) const;
  bool step(Lock& lock, const Demand& demand);
  Stream* choose(const Demand& demand);
  void report_deadlock();
  bool run_head(Lock& lock, Stream& stream);
  bool run_beside(Lock& lock, const Stream& blocked);
  void wait_a_moment(Lock& lock);
  void finish_head(Stream& stream);
  void drop_everything();

  State& state_;
  std::vector<std::shared_ptr<Stream>> busy_;  // streams with queued operations
  std::deque<std::shared_ptr<Demand>> demands_;
  std::condition_variable wanted_, met_;
  std::unique_ptr<WorkerPool> pool_;
  uint64_t serial_ = 0, random_ = 1;
  double blocked_since_ms_ = 0;  // 0: something ran last
  bool stopping_ = false;
  std::thread thread_;
};

double now_ms();
void complete(Completion& completion);

// Runs one piece of work to its end, or as far as it can go: `at` says how far. The lock is given up meanwhile. A
// failure becomes the sticky error. Blocked: it must wait, for what State::waiting_for says or for packets of other
// devices.
Progress run_work(State& state, Executor::Lock& lock, WorkerPool& pool, Work& work, WorkState& at);

}  // namespace nodewright::cpu
