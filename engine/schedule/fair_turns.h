// Whose request is admitted next, and whose gives way: clients share the rows of an engine, and within a client its
// calls, so that a call of thousands of outputs keeps nobody waiting for its end. Within a call the order is that of
// submission. Knows neither pages nor steps. A value.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "engine/schedule/request.h"

namespace nodewright {

class FairTurns {
 public:
  // Each request waits, runs, waits again perhaps, and is gone.
  void wait(const Request& request) { queue_of(request).insert(request.id()); }
  void run(const Request& request);    // it waited
  void yield(const Request& request);  // it ran
  void leave(const Request& request);  // it waited or ran

  // The request to run next, 0 where none waits: the client with the fewest running requests comes first, then its
  // call with the fewest, then the earliest request. `is_blocked` is asked about the first request of a call; a blocked
  // one is returned only when nothing else waits.
  RequestId next(const std::function<bool(RequestId)>& is_blocked) const;
  // Whether the call of a request that waits, and of which nothing runs, has less than its share while one that runs
  // has more: then one of its requests may give way. Two that have the same never take from each other in turn.
  bool is_above(const Request& running, const Request& waiting) const;

 private:
  using Queue = std::set<RequestId>;
  static uint64_t client_of(const Request& request) { return request.spec().client; }
  Queue& queue_of(const Request& request) { return waiting_[client_of(request)][request.call()]; }
  void take_out(const Request& request);
  void end_run(const Request& request);
  int64_t running_of(uint64_t client) const;
  int64_t running_of_call(RequestId call) const;

  std::map<uint64_t, std::map<RequestId, Queue>> waiting_;  // by client and call; no queue is empty
  std::map<uint64_t, int64_t> client_runs_;                 // none is 0
  std::map<RequestId, int64_t> call_runs_;
};

}  // namespace nodewright
