#include "graph/edges/reachability.h"

#include <functional>

namespace nodewright {
namespace {

constexpr int kMostHops = 8;  // from chain to chain, forwards and backwards

}  // namespace

void Reachability::add(uint32_t from, uint32_t to) {
  enter(to);
  rows_.merge(rows_, from, to);
  rows_.set(from, to);
  earlier_.push_back(from);
  Place& place = places_[to];
  const Place earlier = places_[from];
  Chain& chain = chains_[earlier.chain];
  if (chain.last != from) return;
  if (place.chain == kNone) {
    place = {earlier.chain, earlier.position + 1};
    chain.last = to;
  } else if (chain.exit == kNone || chain.exit_position < earlier.position) {
    chain.exit = to;
    chain.exit_position = earlier.position;
  }
}

// Nodes before `node` that no chain goes on with begin one.
void Reachability::enter(uint32_t node) {
  for (; entered_ < node; ++entered_) {
    if (places_[entered_].chain == kNone) {
      places_[entered_] = {static_cast<uint32_t>(chains_.size()), 0};
      chains_.push_back({.last = entered_, .entry = earlier_.empty() ? kNone : earlier_.front()});
    }
    earlier_.clear();
  }
  rows_.enter(node);
}

// Follows chains and their exits from `from`, and chains and their entries back from `to`, until two meet.
bool Reachability::leads_far(uint32_t from, uint32_t to) const {
  if (to == entered_ && std::binary_search(earlier_.begin(), earlier_.end(), from, std::greater<>())) return true;
  uint32_t back = places_[to].chain != kNone ? to : earlier_.empty() ? kNone : earlier_.front();
  for (int i = 0; i < kMostHops && back != kNone && back >= from; ++i) {
    const Place reached = places_[back];
    uint32_t forth = from;
    for (int j = 0; j < kMostHops && forth != kNone && forth <= back; ++j) {
      const Place place = places_[forth];
      if (place.chain == reached.chain && place.position <= reached.position) return true;
      const Chain& chain = chains_[place.chain];
      forth = chain.exit != kNone && chain.exit_position >= place.position ? chain.exit : kNone;
      if (forth == to) return true;
      if (forth != kNone && places_[forth].chain == kNone) break;  // the node that is being entered
    }
    back = chains_[reached.chain].entry;
  }
  return false;
}

void StartOrders::add_whole(uint32_t from, uint32_t to) {
  rows_.enter(to);
  rows_.merge(before_.rows(), from, to);
  rows_.set(from, to);
  note(from, true, to);
}

void StartOrders::add_before(uint32_t from, uint32_t to) {
  rows_.enter(to);
  rows_.merge(before_.rows(), from, to);
  note(from, false, to);
}

void StartOrders::add_start(uint32_t from, uint32_t to) {
  rows_.enter(to);
  rows_.merge(rows_, from, to);
  note(whole_before_[from], with_it_[from], to);
}

void StartOrders::note(uint32_t from, bool with_it, uint32_t to) {
  if (from < whole_before_[to] || (from == whole_before_[to] && !with_it)) return;
  whole_before_[to] = from;
  with_it_[to] = with_it;
}

bool StartOrders::ordered(uint32_t from, uint32_t to) const {
  if (from >= to) return false;
  if (rows_.reaches(from, to)) return rows_.holds(from, to);
  return (with_it_[to] && from == whole_before_[to]) || before_.ordered(from, whole_before_[to]);
}

}  // namespace nodewright
