// For every node of a plan, the nodes that must complete before it, as rows of bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nodewright {

// A triangle of bits: 250 KB for 2000 nodes. Nodes are entered in order; an ancestor has a smaller number than its
// descendant.
class Reachability {
 public:
  explicit Reachability(size_t nodes) : bits_(row_begin(nodes), 0) {}

  // `from`, and all that must complete before it, must complete before `to`. All in-edges of `from` come first.
  void add(uint32_t from, uint32_t to) { add_from(from, to, *this); }
  // `from`, and all that `others` says must complete before it, before `to`.
  void add_from(uint32_t from, uint32_t to, const Reachability& others) {
    inherit_from(from, to, others);
    bits_[row_begin(to) + from / 64] |= 1ull << (from % 64);
  }
  // All that `others` says must complete before `from`, but not `from`, before `to`.
  void inherit_from(uint32_t from, uint32_t to, const Reachability& others) {
    uint64_t* row = &bits_[row_begin(to)];
    const uint64_t* other = &others.bits_[row_begin(from)];
    for (size_t w = 0; w <= from / 64; ++w) row[w] |= other[w];
  }
  bool ordered(uint32_t from, uint32_t to) const {
    return from < to && (bits_[row_begin(to) + from / 64] >> (from % 64) & 1) != 0;
  }

 private:
  // Row n has a bit for each of the nodes 0 to n, in whole words.
  static size_t row_begin(size_t n) { return 32 * (n / 64) * (n / 64 + 1) + (n % 64) * (n / 64 + 1); }

  std::vector<uint64_t> bits_;
};

}  // namespace nodewright
