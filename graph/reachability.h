// For every node of a plan, the nodes that must complete before it, as rows of bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nodewright {

// N x N bits: 500 KB for 2000 nodes. Nodes are entered in order; an ancestor has a smaller number than its descendant.
class Reachability {
 public:
  explicit Reachability(size_t nodes) : words_(nodes / 64 + 1), bits_(nodes * words_, 0) {}

  // `from`, and all that must complete before it, must complete before `to`. All in-edges of `from` come first.
  void add(uint32_t from, uint32_t to) {
    uint64_t* row = &bits_[to * words_];
    const uint64_t* other = &bits_[from * words_];
    for (size_t w = 0; w < words_; ++w) row[w] |= other[w];
    row[from / 64] |= 1ull << (from % 64);
  }
  bool ordered(uint32_t from, uint32_t to) const { return bits_[to * words_ + from / 64] >> (from % 64) & 1; }

 private:
  size_t words_;  // 64-bit words a row
  std::vector<uint64_t> bits_;
};

}  // namespace nodewright
