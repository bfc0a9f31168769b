// Which earlier nodes must complete before a node, in one pass over a plan's edges: exact among the last kWindow nodes,
// by chains of edges beyond them. Memory is the window's and 8 bytes a node, whatever the edges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/edges/graph_work.h"

namespace nodewright {

// A row of bits for each of the last nodes, one bit for each of those.
class WindowRows {
 public:
  static constexpr size_t kWindow = 4096;  // nodes

  explicit WindowRows(size_t nodes) : words_(std::min(nodes / 64 + 1, kWindow / 64 + 1)), bits_(64 * words_ * words_) {}

  // Rows are entered in order; those of nodes in between are empty.
  void enter(uint32_t node) {
    for (; entered_ < node; ++entered_)
      if (entered_ + 1 >= 64 * words_) std::fill_n(&bits_[begin(entered_ + 1)], words_, 0);
  }
  // Whether the row of `to` tells of `from`, an earlier node.
  bool reaches(uint32_t from, uint32_t to) const {
    return to <= entered_ && entered_ - to < 64 * words_ && to / 64 - from / 64 < words_;
  }
  bool holds(uint32_t from, uint32_t to) const { return (word(to, from / 64) >> (from % 64) & 1) != 0; }
  // Neither does anything to bits that the row has no place for.
  void set(uint32_t from, uint32_t to) {
    if (reaches(from, to)) bits_[begin(to) + from / 64 % words_] |= 1ull << (from % 64);
  }
  void merge(const WindowRows& others, uint32_t from, uint32_t to) {
    if (!reaches(from, to)) return;
    uint64_t* const row = &bits_[begin(to)];
    const uint64_t* const other = &others.bits_[others.begin(from)];
    const size_t last = from / 64, first = to / 64 < words_ ? 0 : to / 64 - (words_ - 1);
    const size_t at = first % words_, together = std::min(last - first + 1, words_ - at);
    graph_work += last - first + 1;
    for (size_t w = at; w < at + together; ++w) row[w] |= other[w];
    for (size_t w = 0; w < last - first + 1 - together; ++w) row[w] |= other[w];
  }

 private:
  size_t begin(uint32_t node) const { return node % (64 * words_) * words_; }
  uint64_t word(uint32_t node, size_t block) const { return bits_[begin(node) + block % words_]; }

  size_t words_;  // of a row: blocks of 64 nodes, each at its number modulo words_
  std::vector<uint64_t> bits_;
  uint32_t entered_ = 0;  // the last
};

// The nodes that must complete before a node touches memory. Enter edges by their later node, and among those of one
// node the latest earlier node first. Ask about a node once it was entered, before kWindow others were.
class Reachability {
 public:
  explicit Reachability(size_t nodes) : rows_(nodes), places_(nodes) {}

  // `from`, and all that must complete before it, must complete before `to`.
  void add(uint32_t from, uint32_t to);
  // Exact where `to` is at most kWindow nodes after `from`. Beyond: true if `from` is an end of an edge to `to`, or a
  // path of chains is found; false says nothing then.
  bool ordered(uint32_t from, uint32_t to) const {
    if (from >= to || to > entered_) return false;
    return rows_.reaches(from, to) ? rows_.holds(from, to) : leads_far(from, to);
  }
  bool is_exact(uint32_t from, uint32_t to) const { return rows_.reaches(from, to); }
  const WindowRows& rows() const { return rows_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A node goes on with the chain of one that it follows, if that one is the chain's last so far.
  struct Place {
    uint32_t chain = kNone, position = 0;
  };
  struct Chain {
    uint32_t last = 0;       // node
    uint32_t entry = kNone;  // the latest node that the first one follows
    uint32_t exit = kNone;   // a node of another chain that follows this one's node at exit_position
    uint32_t exit_position = 0;
  };

  void enter(uint32_t node);
  bool leads_far(uint32_t from, uint32_t to) const;

  WindowRows rows_;
  std::vector<Place> places_;
  std::vector<Chain> chains_;
  std::vector<uint32_t> earlier_;  // ends of the edges to the last node entered, the latest first
  uint32_t entered_ = 0;
};

// The nodes that have completed when a node starts, which may be before its wait.
class StartOrders {
 public:
  // `before`: of the same plan, outlives this.
  StartOrders(size_t nodes, const Reachability& before)
      : before_(before), rows_(nodes), whole_before_(nodes), with_it_(nodes) {}

  // `from` and all before it have completed when `to` starts.
  void add_whole(uint32_t from, uint32_t to);
  // All before `from` has.
  void add_before(uint32_t from, uint32_t to);
  // All that had completed when `from` started has.
  void add_start(uint32_t from, uint32_t to);
  // As Reachability::ordered.
  bool ordered(uint32_t from, uint32_t to) const;
  bool is_exact(uint32_t from, uint32_t to) const { return rows_.reaches(from, to); }

 private:
  void note(uint32_t from, bool with_it, uint32_t to);

  const Reachability& before_;
  WindowRows rows_;
  std::vector<uint32_t> whole_before_;  // by node: the latest one, all before which has completed
  std::vector<bool> with_it_;           // and that one, too
};

}  // namespace nodewright
