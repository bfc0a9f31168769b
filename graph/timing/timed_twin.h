// The instrumented twin of a plan: the same nodes on the same buffers with the same edges, and every block leaves the
// time of its start, of its wait's return and of its end in a slot of its own.
//
// - A kernel of ours becomes its timed form (kernels_src/device/dialect.cuh): its argument struct, and after it the
//   address of its slots. Everything else of the node stays.
// - What cannot stamp itself (copies, fills, empty nodes, kernels that no KernelCache made) is bracketed: a stamp
//   kernel before it, one after it, full edges between, its in-edges moved to the first and its out-edges to the
//   second.
// - A plan inside a node, bracketed as that is, becomes a twin too: its slots hold the last round that ran it, and
//   nothing where none did.
//
// Slots need no order among nodes: each belongs to one node, is written by that node alone, and is read when the launch
// is over. That is why a timed kernel may write its start before its wait, where programmatic edges do not order it
// with the kernels before it. The slots are cleared on the stream between launches, never inside the graph.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/node.h"
#include "kernels_src/block_stamps.h"

namespace nodewright {

// How one node of the original plan left its times in the twin.
struct StampedNode {
  std::string name;  // of the original, for errors
  bool bracketed = false;
  uint32_t first_node = 0, last_node = 0;  // of the twin's nodes: the node itself, or the two of its bracket
  uint64_t first_slot = 0, slots = 0;      // one for each block; of a bracket: before, after
  uint64_t inner_slots = 0;                // after those: of the plans inside it
  std::vector<std::vector<StampedNode>> bodies;
};

struct TimedTwin {
  Plan plan;  // "decode.b8.timed"
  DeviceBuffer stamps;
  std::vector<StampedNode> nodes;  // by the original plan's ids

  // The fields of the timed argument structs, by those of the plain ones; the twin's nodes refer to them.
  std::map<const FieldInfo*, std::vector<FieldInfo>> fields;
};

// Compiles the timed forms that are missing. `kernels` made the plan's kernels and must outlive the twin; so must the
// plan's buffers. Throws Error when a timed form does not compile, when the grids have more blocks than kMostSlots,
// when `plan` is a twin already, or when the twin's edges lack an order.
TimedTwin timed_twin(const Plan& plan, KernelCache& kernels);

// Slots for every node of `plan` and of the plans inside it, without the twin's plan.
TimedTwin with_slots(const Plan& plan);

// 512 MiB of slots: a plan of 4000 nodes with 4000 blocks each.
inline constexpr uint64_t kMostSlots = uint64_t{1} << 24;

// When a node ran in one launch, nanoseconds of the device's clock.
struct NodeSpan {
  uint64_t start = 0;   // the first block's start
  uint64_t waited = 0;  // the last block's wait returned; 0 for kernels that do not wait, and for brackets
  uint64_t end = 0;     // the last block's end; of a bracketed node: the end of the stamp after it
  std::vector<std::vector<NodeSpan>> bodies;  // of the plans inside it, by their ids; end 0: no round ran the node
};

// By the original plan's ids, from one launch's slots. Throws Error naming a node of which a block has left no stamps,
// or whose stamps run backwards.
std::vector<NodeSpan> node_spans(const TimedTwin& twin, std::span<const BlockStamps> stamps);

// When and where one block of a kernel node ran in one launch, nanoseconds of the device's clock.
struct BlockSpan {
  uint32_t node = 0;   // of the original plan
  uint64_t block = 0;  // of its grid, x fastest
  uint64_t sm = 0;
  uint64_t start = 0, waited = 0, end = 0;  // waited: 0 for kernels that do not wait
};

// The block spans of the nodes that are not bracketed, in the order of the plan and of their blocks. Throws Error as
// node_spans.
std::vector<BlockSpan> block_spans(const TimedTwin& twin, std::span<const BlockStamps> stamps);

}  // namespace nodewright
