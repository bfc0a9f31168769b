#include "graph/timing/timed_twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "graph/hazard_check.h"
#include "kernels_src/stamp.h"

namespace nodewright {
namespace {

using Slots = Out<BlockStamps>;

[[noreturn]] void refuse(const Plan& plan, std::string detail, std::string advice) {
  throw Error({.doing = "make the timed twin of plan",
               .object = plan.name,
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

bool stamps_itself(const PlanNode& node) {
  return node.kind == NodeKind::kernel && node.kernel != nullptr && !node.kernel->request.name.empty();
}

KernelRequest timed_form(const PlanNode& node) {
  KernelRequest request = node.kernel->request;
  request.timed = true;
  return request;
}

void add_requests(const Plan& plan, std::vector<KernelRequest>& requests) {
  for (const PlanNode& node : plan.nodes) {
    requests.push_back(stamps_itself(node) ? timed_form(node) : KernelRequest{"stamp", {}});
    for (const auto& body : node.bodies) add_requests(*body, requests);
  }
}

// Which slots and which of the twin's nodes each node gets.
class Layout {
 public:
  std::vector<StampedNode> of(const Plan& plan) {
    std::vector<StampedNode> layout;
    uint32_t twin_nodes = 0;
    for (const PlanNode& node : plan.nodes) {
      StampedNode stamped{.name = node.name, .bracketed = !stamps_itself(node), .first_node = twin_nodes};
      stamped.last_node = twin_nodes + (stamped.bracketed ? 2 : 0);
      stamped.slots = stamped.bracketed ? 2 : node.shape.blocks();
      stamped.first_slot = slots_;
      if (stamped.slots > kMostSlots - slots_)
        refuse(plan, fmt::format("with node '{}' there are more than {} blocks to stamp", node.name, kMostSlots),
               "time a plan of smaller grids");
      slots_ += stamped.slots;
      for (const auto& body : node.bodies) stamped.bodies.push_back(of(*body));
      stamped.inner_slots = slots_ - stamped.first_slot - stamped.slots;
      twin_nodes = stamped.last_node + 1;
      layout.push_back(std::move(stamped));
    }
    return layout;
  }
  uint64_t slots() const { return slots_; }

 private:
  uint64_t slots_ = 0;
};

class TwinMaker {
 public:
  // `layout`: of `plan`, which is the twin's or lies inside it.
  TwinMaker(const Plan& plan, const std::vector<StampedNode>& layout, KernelCache& kernels, TimedTwin& twin)
      : plan_(plan), layout_(layout), kernels_(kernels), twin_(twin), made_(plan) {}

  Plan run() && {
    made_.name += ".timed";
    made_.nodes.clear();
    made_.edges.clear();
    if (twin_.stamps.bytes() != 0)
      made_.buffers.push_back({{twin_.stamps.name(), twin_.stamps.address(), twin_.stamps.bytes(), "workspace"}});
    for (const PlanNode& node : plan_.nodes) {
      const StampedNode& stamped = layout_[node.id];
      if (!stamped.bracketed) {
        add(timed(node, stamped));
        continue;
      }
      add(stamp_node(node, "begin", stamped.first_slot));
      add(with_timed_bodies(node, stamped));
      add(stamp_node(node, "end", stamped.first_slot + 1));
    }
    add_edges();
    return std::move(made_);
  }

 private:
  void add(PlanNode node) {
    node.id = static_cast<uint32_t>(made_.nodes.size());
    made_.nodes.push_back(std::move(node));
  }

  PlanNode with_timed_bodies(const PlanNode& node, const StampedNode& stamped) {
    PlanNode made = node;
    for (size_t i = 0; i < node.bodies.size(); ++i)
      made.bodies[i] =
          std::make_shared<const Plan>(TwinMaker(*node.bodies[i], stamped.bodies[i], kernels_, twin_).run());
    if (stamped.inner_slots != 0) made.uses.push_back(use_of(stamped.first_slot + stamped.slots, stamped.inner_slots));
    return made;
  }

  Use use_of(uint64_t first_slot, uint64_t slots) const {
    return {.field = "stamps",
            .buffer = static_cast<uint32_t>(made_.buffers.size() - 1),
            .offset = first_slot * sizeof(BlockStamps),
            .bytes = slots * sizeof(BlockStamps),
            .access = Access::out};
  }
  Slots slots_at(uint64_t first_slot, uint64_t slots) const {
    return view_of<BlockStamps>(twin_.stamps).subview(first_slot, slots);
  }

  PlanNode timed(const PlanNode& node, const StampedNode& stamped) {
    PlanNode made = node;
    const LoadedKernel& kernel = kernels_.get(timed_form(node));
    const uint64_t offset = timed_stamps_offset(node.arguments.size());
    check_kernel(kernel, offset + sizeof(Slots), node.shape);
    kernels_.allow_shared(kernel, node.shape.shared_bytes);
    made.kernel = &kernel;
    made.waits_for_inputs = kernel.waits_for_inputs;
    const Slots slots = slots_at(stamped.first_slot, stamped.slots);
    made.arguments.resize(offset + sizeof slots);
    std::memcpy(made.arguments.data() + offset, &slots, sizeof slots);
    made.fields = timed_fields(node.fields, offset);
    made.uses.push_back(use_of(stamped.first_slot, stamped.slots));
    return made;
  }

  std::span<const FieldInfo> timed_fields(std::span<const FieldInfo> plain, uint64_t offset) {
    std::vector<FieldInfo>& fields = twin_.fields[plain.data()];
    if (fields.empty()) {
      fields.assign(plain.begin(), plain.end());
      fields.push_back({"stamps", offset, sizeof(Slots), RoleOf<Slots>::role, RoleOf<Slots>::element_bytes});
    }
    return fields;
  }

  PlanNode stamp_node(const PlanNode& beside, const char* which, uint64_t slot) {
    const Kernel<Stamp> kernel = kernels_.kernel<Stamp>("stamp", stamp_shape());
    const Stamp args{.stamps = slots_at(slot, 1)};
    PlanNode made;
    made.name = fmt::format("{}#{}", beside.name, which);
    made.layer_chars = beside.layer_chars;
    made.kind = NodeKind::kernel;
    made.kernel = kernel.loaded;
    made.waits_for_inputs = kernel.loaded->waits_for_inputs;
    made.shape = kernel.shape;
    made.arguments.resize(sizeof args);
    std::memcpy(made.arguments.data(), &args, sizeof args);
    made.fields = fields_of<Stamp>();
    made.uses.push_back(use_of(slot, 1));
    made.traffic.bytes_written = sizeof(BlockStamps);
    return made;
  }

  // A bracket begins when all that its node waits for has completed, hence the full edges.
  void add_edges() {
    std::vector<Edge>& edges = made_.edges;
    for (Edge edge : plan_.edges) {
      const StampedNode &from = layout_[edge.from], &to = layout_[edge.to];
      if (from.bracketed || to.bracketed) edge.type = EdgeType::full;
      edge.from = from.last_node;
      edge.to = to.first_node;
      edges.push_back(std::move(edge));
    }
    for (const StampedNode& stamped : layout_)
      for (uint32_t id = stamped.first_node; id < stamped.last_node; ++id)
        edges.push_back({id, id + 1, EdgeType::full, {Reason{.hazard = Hazard::declared}}});
    std::sort(edges.begin(), edges.end(),
              [](const Edge& a, const Edge& b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); });
  }

  const Plan& plan_;
  const std::vector<StampedNode>& layout_;
  KernelCache& kernels_;
  TimedTwin& twin_;
  Plan made_;
};

// The first start and the last end of a node's blocks. `index`: of the first slot, for errors.
NodeSpan span_of(const std::string& name, std::span<const BlockStamps> slots) {
  const auto refuse_stamps = [&](std::string detail) {
    throw Error({.doing = "read the time stamps of node",
                 .object = name,
                 .detail = std::move(detail),
                 .advice = "read them after a launch of the twin that runs every node has completed"});
  };
  NodeSpan span{.start = slots[0].started};
  for (size_t b = 0; b < slots.size(); ++b) {
    const BlockStamps& block = slots[b];
    if (block.started == 0 || block.ended == 0)
      refuse_stamps(fmt::format("block {} of {} has left none", b, slots.size()));
    if (block.ended < block.started || (block.waited != 0 && block.waited < block.started) ||
        block.ended < block.waited)
      refuse_stamps(fmt::format("block {} of {} started at {} ns, had waited at {} ns and ended at {} ns", b,
                                slots.size(), block.started, block.waited, block.ended));
    span.start = std::min(span.start, block.started);
    span.waited = std::max(span.waited, block.waited);
    span.end = std::max(span.end, block.ended);
  }
  return span;
}

// A node of a body that no round has run has left nothing, and has no span.
std::vector<NodeSpan> spans_of(const std::vector<StampedNode>& layout, std::span<const BlockStamps> stamps,
                               bool inside) {
  std::vector<NodeSpan> spans;
  for (const StampedNode& node : layout) {
    const std::span<const BlockStamps> slots = stamps.subspan(node.first_slot, node.slots);
    NodeSpan span;
    const bool ran = std::ranges::any_of(slots, [](const BlockStamps& block) { return block.ended != 0; });
    if (!inside || ran) {
      if (node.bracketed)
        span = {.start = span_of(node.name, slots.first(1)).end, .end = span_of(node.name, slots.last(1)).end};
      else
        span = span_of(node.name, slots);
    }
    for (const std::vector<StampedNode>& body : node.bodies) span.bodies.push_back(spans_of(body, stamps, true));
    spans.push_back(std::move(span));
  }
  return spans;
}

}  // namespace

TimedTwin with_slots(const Plan& plan) {
  Layout layout;
  std::vector<StampedNode> nodes = layout.of(plan);
  return {.plan = {},
          .stamps = DeviceBuffer(*plan.device, plan.name + ".timed.stamps", layout.slots() * sizeof(BlockStamps)),
          .nodes = std::move(nodes),
          .fields = {}};
}

TimedTwin timed_twin(const Plan& plan, KernelCache& kernels) {
  check_plan(plan);
  for (const PlanNode& node : plan.nodes)
    if (node.kernel != nullptr && node.kernel->request.timed)
      refuse(plan, fmt::format("node '{}' runs a timed kernel already", node.name), "pass the plan, not its twin");
  TimedTwin twin = with_slots(plan);
  std::vector<KernelRequest> requests;
  add_requests(plan, requests);
  kernels.prepare(requests);
  twin.plan = TwinMaker(plan, twin.nodes, kernels, twin).run();
  check_plan(twin.plan);
  if (const std::vector<MissingOrder> missing = missing_orders(twin.plan); !missing.empty())
    refuse(plan, fmt::format("{} orders are missing, the first: {}", missing.size(), describe(missing[0])),
           "check the plan's own edges with missing_orders");
  return twin;
}

std::vector<NodeSpan> node_spans(const TimedTwin& twin, std::span<const BlockStamps> stamps) {
  return spans_of(twin.nodes, stamps, false);
}

std::vector<BlockSpan> block_spans(const TimedTwin& twin, std::span<const BlockStamps> stamps) {
  std::vector<BlockSpan> spans;
  for (uint32_t id = 0; id < twin.nodes.size(); ++id) {
    const StampedNode& node = twin.nodes[id];
    if (node.bracketed) continue;
    const std::span<const BlockStamps> slots = stamps.subspan(node.first_slot, node.slots);
    span_of(node.name, slots);  // refuses what is missing
    for (uint64_t b = 0; b < node.slots; ++b)
      spans.push_back({.node = id,
                       .block = b,
                       .sm = slots[b].sm,
                       .start = slots[b].started,
                       .waited = slots[b].waited,
                       .end = slots[b].ended});
  }
  return spans;
}

}  // namespace nodewright
