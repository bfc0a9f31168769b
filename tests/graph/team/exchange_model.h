// The protocol of exchanges in the abstract, and a search of all that can happen: which rank goes on, which block
// starts, which store arrives. Shares nothing with the kernels but the protocol. A packet stands for all that a block
// sends to another rank's.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace nodewright::test {

// What is searched. The defaults are the protocol; the last six plant a fault.
struct ExchangeModel {
  int ranks = 2, blocks = 1, exchanges = 6;
  uint32_t first_epoch = 1;
  bool steps_at_once = false;  // a block sends all at once, and takes all at once: fewer states
  uint32_t stale_epoch = 0;    // of packets that were never written

  int exchanges_a_launch = 6;  // odd: every launch begins with slot 0
  int room = 8;                // blocks on a device at once; fewer than `blocks`: waves
  int slots = 2;
  bool swapped_on_rank_1 = false;  // exchanges 2 i and 2 i + 1
  bool flag_apart = false;         // the epoch is stored beside the data, and before it
  bool one_way = false;            // in the first exchange of a launch rank 0 alone sends, and takes nothing
};

// What the search has found: nothing, or the first state that is wrong.
struct SearchResult {
  enum class End : uint8_t { all_end, deadlock, wrong_value } end = End::all_end;
  size_t states = 0;
  std::string what;
};

class ExchangeSearch {
 public:
  explicit ExchangeSearch(const ExchangeModel& model) : m_(model), parts_(model.flag_apart ? 2 : 1) {}

  // Depth first, each state once.
  SearchResult run() {
    SearchResult result;
    std::unordered_set<std::string> seen;
    std::vector<State> open{first()};
    seen.insert(open[0]);
    while (!open.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      std::vector<State> next;
      if (!expand(state, next, result)) return result;
      if (next.empty() && !has_ended(state)) {
        result.end = SearchResult::End::deadlock;
        return result;
      }
      for (State& each : next)
        if (seen.insert(each).second) open.push_back(std::move(each));
      result.states = seen.size();
    }
    return result;
  }

 private:
  // Bytes. Of a rank: its place among its exchanges, then of each block how many ranks it has sent to, counted from 1
  // once it has started, and which it has taken from. Of each cell, a packet in the memory of one rank: the number of
  // the exchange that it holds, from 1, and of the three that may be on their way there.
  using State = std::string;
  static constexpr int kOnTheWay = 3, kCell = 1 + kOnTheWay;

  int rank_bytes() const { return 1 + 2 * m_.blocks; }
  size_t rank_at(int rank) const { return static_cast<size_t>(rank * rank_bytes()); }
  size_t block_at(int rank, int block) const { return rank_at(rank) + 1 + 2 * static_cast<size_t>(block); }
  size_t cell_at(int to, int from, int slot, int block, int part) const {
    const int cell = (((to * m_.ranks + from) * m_.slots + slot) * m_.blocks + block) * parts_ + part;
    return static_cast<size_t>(m_.ranks * rank_bytes() + cell * kCell);
  }
  size_t cells() const { return static_cast<size_t>(m_.ranks * m_.ranks * m_.slots * m_.blocks * parts_); }
  State first() const { return State(cell_at(0, 0, 0, 0, 0) + cells() * kCell, '\0'); }

  // The number of a rank's exchange at its place.
  int number(int rank, int place) const { return m_.swapped_on_rank_1 && rank == 1 ? place ^ 1 : place; }
  int slot(int number) const { return number % m_.exchanges_a_launch % m_.slots; }
  bool sends(int rank, int number) const { return !m_.one_way || rank == 0 || number % m_.exchanges_a_launch != 0; }
  uint32_t epoch(int number) const { return m_.first_epoch + static_cast<uint32_t>(number); }
  uint32_t epoch_held(char cell) const { return cell == 0 ? m_.stale_epoch : epoch(cell - 1); }
  bool has_ended(const State& s) const {
    for (int rank = 0; rank < m_.ranks; ++rank)
      if (s[rank_at(rank)] != m_.exchanges) return false;
    return true;
  }

  // Appends all states that may follow. False: one that follows is wrong, as `result` says.
  bool expand(const State& s, std::vector<State>& next, SearchResult& result) const {
    for (size_t cell = 0; cell < cells(); ++cell) arrive(s, cell_at(0, 0, 0, 0, 0) + cell * kCell, next);
    for (int rank = 0; rank < m_.ranks; ++rank) {
      if (s[rank_at(rank)] == m_.exchanges) continue;
      int running = 0;
      for (int block = 0; block < m_.blocks; ++block) running += is_running(s, rank, block) ? 1 : 0;
      for (int block = 0; block < m_.blocks; ++block) {
        const int sent = s[block_at(rank, block)];
        if (sent == 0 && running < m_.room) {
          next.push_back(s);
          next.back()[block_at(rank, block)] = 1;
        } else if (sent > 0 && sent < m_.ranks) {
          send(s, rank, block, next);
        } else if (sent == m_.ranks && is_running(s, rank, block) && !take(s, rank, block, next, result)) {
          return false;
        }
      }
    }
    return true;
  }

  char all_others(int rank) const { return static_cast<char>(((1 << m_.ranks) - 1) & ~(1 << rank)); }
  bool is_running(const State& s, int rank, int block) const {
    return s[block_at(rank, block)] > 0 && s[block_at(rank, block) + 1] != all_others(rank);
  }

  // The oldest store on its way to the cell.
  static void arrive(const State& s, size_t cell, std::vector<State>& next) {
    if (s[cell + 1] == 0) return;
    next.push_back(s);
    State& after = next.back();
    for (int i = 0; i < kOnTheWay; ++i) after[cell + static_cast<size_t>(i)] = s[cell + static_cast<size_t>(i) + 1];
    after[cell + kOnTheWay] = 0;
  }

  void send(const State& s, int rank, int block, std::vector<State>& next) const {
    next.push_back(s);
    State& after = next.back();
    const int number_now = number(rank, s[rank_at(rank)]);
    do {
      const int i = after[block_at(rank, block)]++ - 1, to = i < rank ? i : i + 1;
      for (int part = 0; part < parts_ && sends(rank, number_now); ++part) {
        size_t free = cell_at(to, rank, slot(number_now), block, part) + 1;
        while (after[free] != 0) ++free;
        after[free] = static_cast<char>(number_now + 1);
      }
    } while (m_.steps_at_once && after[block_at(rank, block)] < m_.ranks);
  }

  // From one rank, or from all at once.
  bool take(const State& s, int rank, int block, std::vector<State>& next, SearchResult& result) const {
    State all = s;
    bool took_all = true;
    for (int from = 0; from < m_.ranks; ++from) {
      if (from == rank || (s[block_at(rank, block) + 1] >> from & 1) != 0) continue;
      const int number_now = number(rank, s[rank_at(rank)]);
      const char flag = s[cell_at(rank, from, slot(number_now), block, 0)];
      const char data = s[cell_at(rank, from, slot(number_now), block, parts_ - 1)];
      const bool comes = sends(from, number_now);
      if (comes && epoch_held(flag) != epoch(number_now)) {
        took_all = false;
        continue;
      }
      if (comes && data != number_now + 1) {
        result.end = SearchResult::End::wrong_value;
        result.what = "rank " + std::to_string(rank) + " takes " + std::to_string(data - 1) + " from rank " +
                      std::to_string(from) + " in exchange " + std::to_string(number_now);
        return false;
      }
      all[block_at(rank, block) + 1] = static_cast<char>(all[block_at(rank, block) + 1] | 1 << from);
      if (m_.steps_at_once) continue;
      next.push_back(s);
      next.back()[block_at(rank, block) + 1] = static_cast<char>(s[block_at(rank, block) + 1] | 1 << from);
      end_exchange(next.back(), rank);
    }
    if (m_.steps_at_once && took_all) {
      end_exchange(all, rank);
      next.push_back(std::move(all));
    }
    return true;
  }

  // Once all blocks have taken from all ranks.
  void end_exchange(State& s, int rank) const {
    for (int block = 0; block < m_.blocks; ++block)
      if (s[block_at(rank, block) + 1] != all_others(rank)) return;
    ++s[rank_at(rank)];
    for (int block = 0; block < m_.blocks; ++block) s[block_at(rank, block)] = s[block_at(rank, block) + 1] = 0;
  }

  ExchangeModel m_;
  int parts_;
};

}  // namespace nodewright::test
