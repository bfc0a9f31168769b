// Which of many strings a text starts with: a trie whose nodes lie in one array, built once.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace nodewright {

class PrefixTree {
 public:
  PrefixTree() = default;  // holds nothing

  // Strings and their values, 0 and up. An empty string never matches; of two equal ones the last counts.
  explicit PrefixTree(std::vector<std::pair<std::string_view, std::int32_t>> strings);

  // Calls use(size, value) for each string that `text` starts with, the shortest first. Thread-safe.
  template <typename Use>
  void for_each_start(std::string_view text, Use use) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) use(i + 1, nodes_[node].value);
    }
  }

  // Bytes of the longest of them, 0: none.
  std::size_t longest(std::string_view text) const {
    std::size_t size = 0;
    for_each_start(text, [&](std::size_t found, std::int32_t) { size = found; });
    return size;
  }

 private:
  struct Node {
    std::uint32_t first_child = 0;
    std::uint16_t children = 0;  // one after the other, in the order of their bytes
    unsigned char byte = 0;
    std::int32_t value = -1;  // -1: no string ends here
  };

  std::uint32_t child(std::uint32_t node, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_;  // [0]: the root, if there is any
};

}  // namespace nodewright
