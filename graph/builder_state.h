// What a GraphBuilder keeps and how it adds a node. No part of the public interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dump/name_table.h"
#include "graph/edges/edge_derivation.h"
#include "graph/edges/frozen_ranges.h"
#include "graph/graph_builder.h"
#include "graph/hazards/hazard_tracker.h"
#include "runtime/memory/live_buffers.h"

namespace nodewright {

// A use before it is known which buffer it lies in.
struct AddressedUse {
  std::string_view field;
  uint64_t address = 0, bytes = 0;
  Access access = Access::in;
  uint64_t align_bytes = 1;
  bool settled = false;
  PeerUse peer = PeerUse::none;
};

// `rows` rows of `bytes` bytes, `pitch` bytes apart: one end of a copy, the target of a fill.
struct PitchedRows {
  uint64_t bytes = 0, rows = 1, pitch = 0;
};

class GraphBuilder::State {
 public:
  State(Device& device, std::string name, PlanFacts facts);
  // For a body of a node of `outer`: knows its buffers, and that all of them hold values. Its plan declares those that
  // its nodes use.
  State(const State& outer, std::string name);

 private:
  friend class GraphBuilder;
  friend class PlanReplay;

  // The bodies of one conditional node, finished with the plan.
  struct PendingBodies {
    uint32_t node = 0;
    std::vector<std::unique_ptr<State>> bodies;
  };
  static constexpr uint32_t kNone = NameTable::kNone;

  // What the builder knows of a buffer beside the plan.
  struct BufferState {
    bool written = false;       // by a node
    bool frozen = false;        // a part, by a node
    bool unallocated = false;   // memory of a node that an edit has yet to add again
    uint32_t freed_by = kNone;  // the node
  };

  void reserve(size_t nodes);
  void declare(NamedRange range, Live live = {});
  Plan finish(EdgePolicy policy);

  PlanNode new_node(std::string_view name, NodeKind kind) const;
  // Refuses an address among the arguments that none of `uses` explains.
  void check_pointers(const PlanNode& node, std::span<const ArgumentUse> uses, bool foreign) const;
  void check_graph_uses(const PlanNode& node, const Plan& inside, std::span<const DeclaredUse> uses) const;
  PlanNode kernel_node(std::string_view name, const LoadedKernel& kernel, const LaunchShape& shape,
                       const KernelAttributes& attributes) const;
  NodeId add_event(std::string_view name, NodeKind kind, const Event& event, const std::vector<DeclaredUse>& uses,
                   const NodeOptions& options);
  NodeId add_semaphore(std::string_view name, NodeKind kind, CUexternalSemaphore semaphore, uint64_t value,
                       const std::vector<DeclaredUse>& uses, const NodeOptions& options);
  void add_met_uses(const PlanNode& node, const std::vector<DeclaredUse>& uses, bool waits, bool announces,
                    std::vector<AddressedUse>& addressed) const;
  NodeId add_conditional(std::string_view name, ConditionalKind kind, ConditionHandle condition,
                         std::span<const Body> bodies, const NodeOptions& options);
  // Adds `node`, whose uses are `uses` and, for nested plans, what is in node.uses already. `traffic`: where the
  // options have none; otherwise the bytes of the uses.
  NodeId add(PlanNode&& node, std::span<const AddressedUse> uses, const NodeOptions& options,
             const std::optional<Traffic>& traffic = std::nullopt);
  // One end of a box in memory.
  void check_box_end(const PlanNode& node, std::string_view field, const CopyBox& box, uint64_t pitch, uint64_t height,
                     uint64_t held_bytes) const;
  CopyNode add_array_copy(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyBox& box,
                          const NodeOptions& options);
  void check_arrays(const PlanNode& node) const;
  // Adds a node of another plan as it is there, without what is special to nodes with bodies.
  NodeId add_again(const Plan& from, const PlanNode& node, const NodeOptions& options);
  void check_options(const PlanNode& node, const NodeOptions& options) const;
  // Declares memory that a node of another plan allocates, so that new allocations lie elsewhere.
  void declare_unallocated(const Buffer& buffer);
  size_t condition_index(uint64_t address) const;  // in plan_.conditions; their number where there is none
  AddressedUse declared_use(const PlanNode& node, const DeclaredUse& use, size_t place) const;
  AddressedUse memory_use(const PlanNode& node, const FieldInfo& field, std::span<const std::byte> arguments) const;
  // The use of `count` elements at `address`.
  AddressedUse elements_use(const PlanNode& node, const ArgumentUse& use, uint64_t address, uint64_t count) const;
  void check_envelope(const PlanNode& node, const AddressedUse& use, const AddressedUse& envelope) const;
  void check_rows(const PlanNode& node, std::string_view field, const PitchedRows& rows, uint64_t held_bytes) const;
  void check_overlaps(const PlanNode& node) const;
  void check_initialised(const PlanNode& node) const;
  void check_frozen(const PlanNode& node) const;
  void check_allocated(const PlanNode& node) const;
  void check_all_freed() const;
  void check_allowed_in_body(const PlanNode& node) const;
  void find_earlier(const PlanNode& node, std::span<const NodeId> after);
  void order_with_loops(const PlanNode& node);
  void note_exchange(PlanNode& node) const;
  Use locate(const PlanNode& node, const AddressedUse& use);
  bool declare_outer_buffer(uint64_t address, uint64_t bytes);
  bool declare_live_buffer(uint64_t address, uint64_t bytes);
  // Whose memory lies there, in words, where the driver knows it to be another device's; empty otherwise.
  std::string other_device_at(uint64_t address) const;
  void forget_buffers_from(size_t first);
  ByteRange address_range(const Use& use) const;
  const Buffer* buffer_named(std::string_view name) const;
  // A buffer that shares bytes with the range.
  const Buffer* overlapping(uint64_t address, uint64_t bytes) const;
  // The buffer that holds all bytes of the range, of this plan or of one around it.
  const Buffer* known_buffer(uint64_t address, uint64_t bytes) const;
  // The last buffer that starts at or below `address`; kNone when there is none.
  uint32_t buffer_below(uint64_t address) const;
  uint32_t node_named(std::string_view name) const;
  [[noreturn]] void refuse(const PlanNode& node, std::string detail, std::string advice) const;

  Plan plan_;
  uint64_t allocated_bytes_ = 0;  // addresses that allocate() has given out
  bool has_allocated_ = false;    // a buffer is memory of allocate(), of this builder or of one around it
  bool has_arrays_ = false;       // the same of arrays
  bool is_body_ = false;
  uint64_t loop_around_ = 0;      // of a loop's body: loops_address of the plan that the loop is in
  uint32_t last_loop_ = kNone;    // the node
  bool loops_nest_ = false;       // a loop in a conditional node, or one of those in a loop
  std::string prefix_;            // of the scopes that are open, with their dots
  uint32_t layer_chars_ = 0;      // of prefix_: the outermost scope
  const State* outer_ = nullptr;  // of a body: of the builder around it
  std::map<uint64_t, uint32_t> buffers_by_address_;
  std::vector<BufferState> buffer_states_;  // by index in plan_.buffers
  LiveBuffer last_live_;                    // that of the last range declared: the next often lies in it, too
  NameTable buffer_names_, node_names_;
  HazardTracker hazards_;
  FrozenRanges frozen_;
  std::vector<uint32_t> obeyed_by_;  // by index in plan_.conditions: the conditional node, or kNone
  Orders orders_;
  std::vector<PendingBodies> pending_bodies_;
  std::vector<uint32_t> also_after_;     // what every node that is added follows: set by an edit
  std::vector<AddressedUse> addressed_;  // scratch of add_kernel()
  std::vector<RequiredOrder> required_;  // scratch of find_earlier()
  std::vector<RangeUse> ranges_;         // scratch of find_earlier()
  std::vector<uint32_t> declared_;       // scratch of find_earlier()
};

}  // namespace nodewright
