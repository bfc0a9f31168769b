// Who is next among many that wait: clients take turns, and so do the calls of a client, one item a turn. A call of
// many items keeps another one waiting for one of them. Within a call the order is that of the items' numbers. A value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace nodewright {

class TurnLines {
 public:
  struct Item {
    uint64_t client = 0;
    int64_t call = 0;
    int64_t number = 0;
  };

  // Each item waits, and then is begun or leaves.
  void wait(const Item& item);
  // It has its turn: its client and its call go to the end of their lines. Nothing where it does not wait; so leave().
  void begin(const Item& item);
  void leave(const Item& item);
  bool waits(const Item& item) const;

  // The number of the next item; nothing where none waits.
  std::optional<int64_t> next() const;
  // The first item of every call, in the order of their numbers.
  std::vector<int64_t> firsts() const;

 private:
  struct Call {
    uint64_t turn = 0;  // the lowest is next
    std::set<int64_t> waiting;
  };
  struct Client {
    uint64_t turn = 0;
    std::map<int64_t, Call> calls;
  };

  std::map<uint64_t, Client> clients_;  // those with items that wait
  uint64_t last_turn_ = 0;
};

}  // namespace nodewright
