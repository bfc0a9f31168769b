#include "text/tokenizer/tokens/prefix_tree.h"

#include <algorithm>

namespace nodewright {

PrefixTree::PrefixTree(std::vector<std::pair<std::string_view, std::int32_t>> strings) {
  std::erase_if(strings, [](const auto& one) { return one.first.empty(); });
  std::stable_sort(strings.begin(), strings.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // The strings of a node, and their bytes that the node has read; nodes wait in the order of their numbers.
  struct Waiting {
    std::size_t begin, end, depth;
  };
  std::vector<Waiting> waiting = {{0, strings.size(), 0}};
  if (strings.empty()) return;
  nodes_.emplace_back();
  for (std::size_t node = 0; node < waiting.size(); ++node) {
    auto [begin, end, depth] = waiting[node];
    for (; begin < end && strings[begin].first.size() == depth; ++begin) nodes_[node].value = strings[begin].second;
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = strings[begin].first[depth];
      const std::size_t first = begin;
      while (begin < end && strings[begin].first[depth] == byte) ++begin;
      waiting.push_back({first, begin, depth + 1});
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ++nodes_[node].children;
    }
  }
}

std::uint32_t PrefixTree::child(std::uint32_t node, unsigned char byte) const {
  if (nodes_.empty()) return 0;
  const Node* first = nodes_.data() + nodes_[node].first_child;
  const Node* last = first + nodes_[node].children;
  const Node* found =
      std::lower_bound(first, last, byte, [](const Node& one, unsigned char b) { return one.byte < b; });
  return found == last || found->byte != byte ? 0 : static_cast<std::uint32_t>(found - nodes_.data());
}

}  // namespace nodewright
