#include "engine/schedule/fair_turns.h"

#include <limits>
#include <tuple>

namespace nodewright {
namespace {

template <class Key>
int64_t count_of(const std::map<Key, int64_t>& counts, Key key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

template <class Key>
void count_down(std::map<Key, int64_t>& counts, Key key) {
  if (const auto found = counts.find(key); --found->second == 0) counts.erase(found);
}

}  // namespace

int64_t FairTurns::running_of(uint64_t client) const { return count_of(client_runs_, client); }
int64_t FairTurns::running_of_call(RequestId call) const { return count_of(call_runs_, call); }

void FairTurns::run(const Request& request) {
  take_out(request);
  ++client_runs_[client_of(request)];
  ++call_runs_[request.call()];
}

void FairTurns::yield(const Request& request) {
  end_run(request);
  wait(request);
}

void FairTurns::leave(const Request& request) {
  const auto client = waiting_.find(client_of(request));
  if (client != waiting_.end())
    if (const auto call = client->second.find(request.call());
        call != client->second.end() && call->second.contains(request.id()))
      return take_out(request);
  end_run(request);
}

void FairTurns::take_out(const Request& request) {
  const auto client = waiting_.find(client_of(request));
  const auto call = client->second.find(request.call());
  call->second.erase(request.id());
  if (call->second.empty()) client->second.erase(call);
  if (client->second.empty()) waiting_.erase(client);
}

void FairTurns::end_run(const Request& request) {
  count_down(client_runs_, client_of(request));
  count_down(call_runs_, request.call());
}

RequestId FairTurns::next(const std::function<bool(RequestId)>& is_blocked) const {
  using Rank = std::tuple<bool, int64_t, int64_t, RequestId>;  // blocked, of the client, of the call, the request
  Rank best{true, std::numeric_limits<int64_t>::max(), 0, 0};
  for (const auto& [client, calls] : waiting_) {
    const int64_t of_client = running_of(client);
    for (const auto& [call, queue] : calls) {
      const int64_t of_call = running_of_call(call);
      const RequestId first = *queue.begin();
      const Rank rank{is_blocked(first), of_client, of_call, first};
      if (rank < best) best = rank;
      if (of_call == 0 && !std::get<0>(rank)) break;  // calls come in the order of their first requests
    }
  }
  return std::get<3>(best);
}

bool FairTurns::is_above(const Request& running, const Request& waiting) const {
  if (running_of_call(waiting.call()) > 0) return false;
  const uint64_t mine = client_of(waiting), other = client_of(running);
  if (mine != other && running_of(other) != running_of(mine)) return running_of(other) >= running_of(mine) + 2;
  return running_of_call(running.call()) >= 2;
}

}  // namespace nodewright
