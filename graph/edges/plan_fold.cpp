#include "graph/edges/plan_fold.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ranges>
#include <tuple>

namespace nodewright {
namespace {

std::vector<LayerBlock> blocks_of(const Plan& plan) {
  std::vector<LayerBlock> blocks;
  for (const PlanNode& node : plan.nodes) {
    if (blocks.empty() || node.layer().empty() || blocks.back().layer != node.layer())
      blocks.push_back({.layer = std::string(node.layer()), .first = node.id});
    ++blocks.back().count;
  }
  return blocks;
}

// Two blocks that follow one another, and the ones before and after them, if there are any.
class BlockPair {
 public:
  BlockPair(const Plan& plan, const std::vector<std::vector<const Edge*>>& in_edges, const LayerBlock* before,
            const LayerBlock& earlier, const LayerBlock& later, const LayerBlock* behind, bool earlier_begins_run)
      : plan_(plan),
        in_edges_(in_edges),
        before_(before),
        earlier_(earlier),
        later_(later),
        behind_(behind),
        earlier_begins_run_(earlier_begins_run) {}

  bool same() const {
    if (earlier_.layer.empty() || later_.layer.empty() || earlier_.count != later_.count) return false;
    for (uint32_t i = 0; i < earlier_.count; ++i)
      if (!same_node(plan_.nodes[earlier_.first + i], plan_.nodes[later_.first + i])) return false;
    return true;
  }

 private:
  // Whether the name has a part of either block or of their neighbours: then the same name means another place in each.
  bool is_of_layers(std::string_view name) const {
    return std::ranges::any_of(std::array{before_, &earlier_, &later_, behind_}, [&](const LayerBlock* block) {
      return block != nullptr && !block->layer.empty() && replace_layer(name, block->layer, "") != name;
    });
  }

  bool same_name(std::string_view earlier, std::string_view later) const {
    if (earlier == later) return !is_of_layers(earlier);
    return replace_layer(earlier, earlier_.layer, later_.layer) == later ||
           (before_ != nullptr && replace_layer(earlier, before_->layer, earlier_.layer) == later) ||
           (behind_ != nullptr && replace_layer(earlier, later_.layer, behind_->layer) == later);
  }

  bool same_buffer(uint32_t earlier, uint32_t later) const {
    const Buffer &a = plan_.buffers[earlier], &b = plan_.buffers[later];
    return a.range.bytes == b.range.bytes && a.range.kind == b.range.kind && a.live_in == b.live_in &&
           a.live_out == b.live_out && same_name(a.range.name, b.range.name);
  }

  // The buffers of a graph that was built elsewhere are allocations, in which every layer has its own part.
  bool same_place(uint32_t a, uint64_t a_offset, uint32_t b, uint64_t b_offset) const {
    return plan_.nodes[earlier_.first].read != nullptr || (a_offset == b_offset && same_buffer(a, b));
  }

  bool same_use(const Use& a, const Use& b) const {
    return a.field == b.field && a.bytes == b.bytes && a.access == b.access &&
           same_place(a.buffer, a.offset, b.buffer, b.offset);
  }

  // Up to addresses.
  static bool same_copy(CopyParameters a, const CopyParameters& b) {
    a.to = b.to;
    a.from = b.from;
    return a == b;
  }
  static bool same_fill(FillParameters a, const FillParameters& b) {
    a.to = b.to;
    return a == b;
  }

  static bool same_field(const PlanNode& a, const PlanNode& b, const FieldInfo& x, const FieldInfo& y) {
    if (x.name != y.name || x.offset != y.offset || x.bytes != y.bytes || x.role != y.role || x.element != y.element)
      return false;
    return x.role != Role::scalar || a.read != nullptr ||
           std::memcmp(a.arguments.data() + x.offset, b.arguments.data() + y.offset, x.bytes) == 0;
  }

  // Up to addresses.
  static bool same_read(const PlanNode& a, const PlanNode& b) {
    if (a.read == nullptr || b.read == nullptr) return a.read == b.read;
    if (a.read->what != b.read->what || a.read->pointers != b.read->pointers) return false;
    auto x = a.arguments, y = b.arguments;
    for (const uint32_t pointer : a.read->pointers)
      for (auto* arguments : {&x, &y}) std::fill_n(arguments->begin() + pointer, sizeof(uint64_t), std::byte{0});
    return x == y;
  }

  static bool same_arguments(const PlanNode& a, const PlanNode& b) {
    return a.arguments.size() == b.arguments.size() &&
           std::ranges::equal(a.fields, b.fields,
                              [&](const FieldInfo& x, const FieldInfo& y) { return same_field(a, b, x, y); });
  }

  // Functions cannot be compared: of library calls their words are, as dumps show them.
  static bool same_function(const PlanNode& a, const PlanNode& b) {
    if (a.library == nullptr || b.library == nullptr) return a.library == b.library && a.host == b.host;
    return a.library->what == b.library->what;
  }

  bool same_node(const PlanNode& a, const PlanNode& b) const {
    if (a.bodies != b.bodies || !same_function(a, b) || a.event != b.event || !same_read(a, b)) return false;
    return a.kind == b.kind && replace_layer(a.name, earlier_.layer, later_.layer) == b.name && a.kernel == b.kernel &&
           a.waits_for_inputs == b.waits_for_inputs && a.traffic.bytes_read == b.traffic.bytes_read &&
           a.traffic.bytes_written == b.traffic.bytes_written && a.shape == b.shape && a.attributes == b.attributes &&
           same_copy(a.copy, b.copy) && same_fill(a.fill, b.fill) && same_arguments(a, b) &&
           std::ranges::equal(a.uses, b.uses, [&](const Use& x, const Use& y) { return same_use(x, y); }) &&
           same_edges(a, b);
  }

  bool same_edges(const PlanNode& a, const PlanNode& b) const {
    const auto counts = [&](const LayerBlock& block) {
      return [&](const Edge* edge) { return !earlier_begins_run_ || edge->from >= block.first; };
    };
    return std::ranges::equal(in_edges_[a.id] | std::views::filter(counts(earlier_)),
                              in_edges_[b.id] | std::views::filter(counts(later_)),
                              [&](const Edge* x, const Edge* y) { return same_edge(*x, *y); });
  }

  bool same_edge(const Edge& a, const Edge& b) const {
    const auto words = [](const Edge& edge) { return std::tie(edge.driver_type, edge.from_port, edge.to_port); };
    return a.type == b.type && words(a) == words(b) && same_source(a.from, b.from) &&
           std::ranges::equal(a.reasons, b.reasons, [&](const Reason& x, const Reason& y) {
             return x.hazard == y.hazard && x.bytes == y.bytes && same_place(x.buffer, x.offset, y.buffer, y.offset);
           });
  }

  // Sources outside the blocks are asked for within a run only, where all three blocks have the same count.
  bool same_source(uint32_t a, uint32_t b) const {
    const bool a_inside = a >= earlier_.first, b_inside = b >= later_.first;
    if (a_inside || b_inside) return a_inside && b_inside && a + earlier_.count == b;
    return a == b || (a >= before_->first && a + earlier_.count == b);
  }

  const Plan& plan_;
  const std::vector<std::vector<const Edge*>>& in_edges_;
  const LayerBlock* before_;
  const LayerBlock &earlier_, &later_;
  const LayerBlock* behind_;
  bool earlier_begins_run_;
};

}  // namespace

std::vector<BlockRun> fold_layers(const Plan& plan) {
  std::vector<std::vector<const Edge*>> in_edges(plan.nodes.size());
  for (const Edge& edge : plan.edges) in_edges[edge.to].push_back(&edge);
  const std::vector<LayerBlock> blocks = blocks_of(plan);
  std::vector<BlockRun> runs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const LayerBlock* before = i > 1 ? &blocks[i - 2] : nullptr;
    const LayerBlock* behind = i + 1 < blocks.size() && !blocks[i + 1].layer.empty() ? &blocks[i + 1] : nullptr;
    if (i > 0 &&
        BlockPair(plan, in_edges, before, blocks[i - 1], blocks[i], behind, runs.back().blocks.size() == 1).same())
      runs.back().blocks.push_back(blocks[i]);
    else
      runs.push_back({{blocks[i]}});
  }
  return runs;
}

std::string replace_layer(std::string_view name, std::string_view layer, std::string_view by) {
  std::string out;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    out += part == layer ? by : part;
    if (end < name.size()) out += '.';
    begin = end + 1;
  }
  return out;
}

}  // namespace nodewright
