#include "graph/read/read_blocks.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nodewright {
namespace {

constexpr size_t kFewestNodes = 8;      // of a run of blocks
constexpr size_t kMostCandidates = 64;  // next nodes of the same kind at which a second block may begin

// Equal for nodes that may stand for each other in blocks.
std::string kind_of(const PlanNode& node) {
  if (node.kind == NodeKind::allocate || node.kind == NodeKind::free || !node.bodies.empty()) return node.name;
  const LaunchShape& s = node.shape;
  const CopyParameters& c = node.copy;
  const FillParameters& f = node.fill;
  return fmt::format("{} {} {},{},{} {},{},{} {} {},{},{} {},{},{}", to_string(node.kind),
                     static_cast<const void*>(node.kernel), s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1],
                     s.block[2], s.shared_bytes, c.bytes, c.rows, c.slices, f.count, f.rows, f.value);
}

// Which runs of nodes are alike, in constant time each.
class Sequence {
 public:
  explicit Sequence(const Plan& plan) : hashes_{0}, powers_{1}, next_(plan.nodes.size(), plan.nodes.size()) {
    std::unordered_map<std::string, uint64_t> numbers;
    std::vector<size_t> last;  // node of each number
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      const auto [found, is_new] = numbers.emplace(kind_of(plan.nodes[i]), numbers.size() + 1);
      if (is_new)
        last.push_back(i);
      else
        next_[std::exchange(last[found->second - 1], i)] = i;
      hashes_.push_back(hashes_.back() * kBase + found->second);
      powers_.push_back(powers_.back() * kBase);
    }
  }

  size_t size() const { return next_.size(); }
  size_t next(size_t i) const { return next_[i]; }  // of the same kind; size() where there is none
  bool alike(size_t a, size_t b, size_t count) const { return b + count <= size() && hash(a, count) == hash(b, count); }

 private:
  static constexpr uint64_t kBase = 0x9e3779b97f4a7c15;  // odd: every power tells numbers apart
  uint64_t hash(size_t first, size_t count) const { return hashes_[first + count] - hashes_[first] * powers_[count]; }

  std::vector<uint64_t> hashes_, powers_;  // of the first i nodes
  std::vector<size_t> next_;
};

struct Run {
  size_t count = 0, times = 0;  // nodes of a block, blocks
};

Run longest_run(const Sequence& sequence, size_t first) {
  Run best;
  size_t second = sequence.next(first);
  for (size_t i = 0; i < kMostCandidates && second < sequence.size(); ++i, second = sequence.next(second)) {
    Run run{second - first, 1};
    while (sequence.alike(first, first + run.times * run.count, run.count)) ++run.times;
    if (run.times > 1 && run.times * run.count > best.times * best.count) best = run;
  }
  return best;
}

}  // namespace

void name_blocks(Plan& plan) {
  const Sequence sequence(plan);
  size_t blocks = 0;
  for (size_t first = 0; first < sequence.size();) {
    const Run run = longest_run(sequence, first);
    if (run.times * run.count < kFewestNodes) {
      ++first;
      continue;
    }
    for (size_t block = 0; block < run.times; ++block) {
      const std::string layer = fmt::format("block{}", blocks++);
      std::map<std::string, size_t> numbers;
      for (size_t i = 0; i < run.count; ++i, ++first) {
        PlanNode& node = plan.nodes[first];
        const std::string base = node.name.substr(0, node.name.rfind('.'));
        node.name = fmt::format("{}.{}.{}", layer, base, numbers[base]++);
        node.layer_chars = static_cast<uint32_t>(layer.size());
      }
    }
  }
}

}  // namespace nodewright
