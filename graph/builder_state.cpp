#include "graph/builder_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "graph/hazard_check.h"
#include "graph/nodes/launch_rules.h"
#include "runtime/memory/known_memory.h"

namespace nodewright {
namespace {

constexpr size_t kFirstMemoryBytes = 1 << 10;  // of a plan; grows as it goes
constexpr size_t kGrowFast = 1024;             // nodes
constexpr size_t kMemoryBytesOfNode = 320;     // of most nodes: name, arguments, uses, edges

Access access_of(Role role) {
  switch (role) {
    case Role::frozen:
      return Access::frozen;
    case Role::out:
    case Role::partial_out:
    case Role::condition:
    case Role::peer_out:
      return Access::out;
    case Role::in_out:
    case Role::settled_in_out:
      return Access::inout;
    case Role::in:
    case Role::settled:
    case Role::peer_in:
    case Role::exchange_number:
    case Role::scalar:
      break;
  }
  return Access::in;
}

bool overlap(const Use& a, const Use& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

std::string in_hex(uint64_t address, uint64_t bytes) { return fmt::format("{:#x} + {} bytes", address, bytes); }

}  // namespace

GraphBuilder::State::State(Device& device, std::string name, PlanFacts facts) {
  static std::atomic<uint64_t> last_id = 0;
  plan_.id = ++last_id;
  plan_.memory = PlanMemory(kFirstMemoryBytes);
  plan_.name = std::move(name);
  plan_.facts = std::move(facts);
  plan_.device = &device;
}

void GraphBuilder::State::reserve(size_t nodes) {
  if (plan_.nodes.empty()) plan_.memory = PlanMemory(std::max(kFirstMemoryBytes, nodes * kMemoryBytesOfNode));
  plan_.nodes.reserve(plan_.nodes.size() + nodes);
  node_names_.reserve(plan_.nodes.size() + nodes);
}

void GraphBuilder::State::declare(NamedRange range, Live live) {
  const auto refuse_range = [&](std::string detail) {
    throw Error({.doing = "declare buffer",
                 .object = range.name,
                 .detail = fmt::format("in plan '{}': {}", plan_.name, detail),
                 .advice = "declare every range once, under one name"});
  };
  const auto refuse_other_range = [&](const NamedRange& other) {
    refuse_range(fmt::format("the name stands for {} already, not {}", in_hex(other.address, other.bytes),
                             in_hex(range.address, range.bytes)));
  };
  const auto is_same = [&](const NamedRange& other) {
    return other.address == range.address && other.bytes == range.bytes;
  };
  if (const Buffer* found = buffer_named(range.name)) {
    if (!is_same(found->range)) refuse_other_range(found->range);
    Buffer& buffer = plan_.buffers[static_cast<size_t>(found - plan_.buffers.data())];
    buffer.live_in |= live.live_in;
    buffer.live_out |= live.live_out;
    buffer.peer |= live.peer;
    return;
  }
  if (range.bytes == 0) refuse_range("it has 0 bytes");
  if (range.address > std::numeric_limits<uint64_t>::max() - range.bytes)
    refuse_range(in_hex(range.address, range.bytes) + " is beyond the last address");
  const Buffer* outer = nullptr;
  for (const State* builder = this; builder != nullptr; builder = builder->outer_) {
    if (const Buffer* found = builder->buffer_named(range.name)) {
      if (!is_same(found->range)) refuse_other_range(found->range);
      outer = found;
    } else if (const Buffer* other = builder->overlapping(range.address, range.bytes)) {
      refuse_range(fmt::format("{} overlaps '{}', {}", in_hex(range.address, range.bytes), other->range.name,
                               in_hex(other->range.address, other->range.bytes)));
    }
  }
  if (outer != nullptr) live = {.live_in = true, .live_out = true, .peer = outer->peer};
  if (!last_live_.holds(range.address)) last_live_ = plan_.device->buffers().at(range.address);
  if (last_live_.serial == 0 && !live.peer)
    if (const std::string other = other_device_at(range.address); !other.empty())
      throw Error({.doing = "declare buffer",
                   .object = range.name,
                   .detail = fmt::format("in plan '{}' of {}: {} is memory of {}", plan_.name,
                                         describe_device(*plan_.device), in_hex(range.address, range.bytes), other),
                   .advice = "use memory of the plan's device, or say Live::peer where peer access is enabled"});
  const auto index = static_cast<uint32_t>(plan_.buffers.size());
  buffers_by_address_.emplace(range.address, index);
  buffer_names_.insert(range.name, index);
  buffer_states_.emplace_back();
  has_allocated_ |= is_allocated(range.address);
  has_arrays_ |= is_array(range.address);
  plan_.buffers.push_back({std::move(range), live.live_in, live.live_out, live.peer, last_live_.serial});
}

// The number of the exchange that the node takes part in, if it does.
void GraphBuilder::State::note_exchange(PlanNode& node) const {
  const auto of_peer = [](const AddressedUse& use) { return use.peer != PeerUse::none && use.bytes != 0; };
  const auto used = std::find_if(addressed_.begin(), addressed_.end(), of_peer);
  if (used == addressed_.end()) return;
  const auto number = std::find_if(node.fields.begin(), node.fields.end(),
                                   [](const FieldInfo& field) { return field.role == Role::exchange_number; });
  if (number == node.fields.end())
    refuse(node, fmt::format("field '{}' is memory of packets, and no field is an ExchangeNumber", used->field),
           "give the argument struct an ExchangeNumber field, as Exchange has one");
  std::memcpy(&node.exchange.emplace(), node.arguments.data() + number->offset, sizeof(uint32_t));
}

PlanNode GraphBuilder::State::kernel_node(std::string_view name, const LoadedKernel& kernel, const LaunchShape& shape,
                                          const KernelAttributes& attributes) const {
  PlanNode node = new_node(name, NodeKind::kernel);
  node.kernel = &kernel;
  node.shape = shape;
  node.attributes = attributes;
  if (node.attributes.cluster == KernelAttributes{}.cluster)
    std::copy(std::begin(shape.cluster), std::end(shape.cluster), node.attributes.cluster.begin());
  if (node.attributes.shared_carveout_percent < 0)
    node.attributes.shared_carveout_percent = shape.shared_carveout_percent;
  if (std::string problem = device_problem(kernel, *plan_.device); !problem.empty())
    refuse(node, std::move(problem), "load the kernel on the plan's device");
  if (const Device* green = attributes.green.device; green != nullptr && green->context() != plan_.device->context())
    refuse(node,
           fmt::format("its green context is of {}, and the plan is for {}", describe_device(*green),
                       describe_device(*plan_.device)),
           "split the multiprocessors of the plan's device");
  if (std::string problem = launch_problem(node, plan_.device->properties()); !problem.empty())
    refuse(node, std::move(problem), "change the launch shape or the attributes");
  if (is_body_ && attributes.device_updatable)
    refuse(node, "a conditional node's body cannot hold a kernel that the device may update",
           "add it to the plan around the conditional node");
  return node;
}

void GraphBuilder::State::check_rows(const PlanNode& node, std::string_view field, const PitchedRows& rows,
                                     uint64_t held_bytes) const {
  if (rows.rows > 1 && rows.pitch < rows.bytes)
    refuse(node, fmt::format("rows of {} bytes lie {} bytes apart in '{}'", rows.bytes, rows.pitch, field),
           "pass a pitch of at least a row");
  const uint64_t steps = rows.rows - 1, most = std::numeric_limits<uint64_t>::max();
  const bool beyond = steps != 0 && rows.pitch > (most - rows.bytes) / steps;
  if (beyond || steps * rows.pitch + rows.bytes > held_bytes)
    refuse(node,
           fmt::format("{} rows of {} bytes, {} bytes apart, in the {} bytes of '{}'", rows.rows, rows.bytes,
                       rows.pitch, held_bytes, field),
           fmt::format("use no more than '{}' has", field));
}

PlanNode GraphBuilder::State::new_node(std::string_view name, NodeKind kind) const {
  PlanNode node(plan_.memory.get());
  node.id = static_cast<uint32_t>(plan_.nodes.size());
  node.name.reserve(prefix_.size() + name.size());
  node.name.append(prefix_).append(name);
  node.layer_chars = layer_chars_;
  node.kind = kind;
  if (name.empty()) refuse(node, "its name is empty", "name the node after what it does");
  if (node_named(node.name) != kNone) refuse(node, "the name is taken by another node", "give it a name of its own");
  check_allowed_in_body(node);
  return node;
}

NodeId GraphBuilder::State::add(PlanNode&& node, std::span<const AddressedUse> uses, const NodeOptions& options,
                                const std::optional<Traffic>& traffic) {
  check_options(node, options);
  const size_t buffers = plan_.buffers.size();
  try {
    node.uses.reserve(node.uses.size() + uses.size());
    for (const AddressedUse& use : uses)
      if (use.bytes != 0) node.uses.push_back(locate(node, use));
    check_overlaps(node);
    if (has_allocated_) check_allocated(node);
    if (has_arrays_) check_arrays(node);
    check_initialised(node);
    check_frozen(node);
    for (const NodeId& earlier : options.after)
      if (earlier.plan != plan_.id || earlier.index >= plan_.nodes.size())
        refuse(node,
               fmt::format("it is to follow node {}, which is not one of the {} nodes of plan '{}'", earlier.index,
                           plan_.nodes.size(), plan_.name),
               "pass ids that this builder returned");
  } catch (...) {
    forget_buffers_from(buffers);
    throw;
  }

  // Nothing can be refused from here on.
  find_earlier(node, options.after);
  if (options.traffic || traffic)
    node.traffic = options.traffic ? *options.traffic : *traffic;
  else
    for (const Use& use : node.uses) {
      if (reads(use.access)) node.traffic.bytes_read += use.bytes;
      if (writes(use.access)) node.traffic.bytes_written += use.bytes;
    }
  const uint32_t id = node.id;
  node_names_.insert(node.name, id);
  // Nodes are large: where there are few, they move less often than a vector would have it. Bodies have a handful each,
  // and there may be thousands of bodies.
  if (!is_body_ && id == plan_.nodes.capacity() && id < kGrowFast)
    plan_.nodes.reserve(std::max<size_t>(16, 4 * size_t{id}));
  plan_.nodes.push_back(std::move(node));
  return {id, plan_.id};
}

void GraphBuilder::State::check_options(const PlanNode& node, const NodeOptions& options) const {
  if (node.kind == NodeKind::kernel) return;
  std::string_view wrong;
  if (options.attributes != KernelAttributes{})
    wrong = "attributes";
  else if (!options.envelope.bytes.empty())
    wrong = "an envelope";
  else if (options.waits_for_inputs || options.exchange)
    wrong = "whether it waits or which exchange it takes part in";
  if (!wrong.empty())
    refuse(node, fmt::format("its options say {}, and a node of kind {} has none", wrong, to_string(node.kind)),
           "pass after and traffic alone");
}

NodeId GraphBuilder::State::add_again(const Plan& from, const PlanNode& node, const NodeOptions& options) {
  PlanNode again = new_node(node.name, node.kind);
  const uint32_t id = again.id;
  again = node;
  again.id = id;
  again.uses.clear();
  std::vector<AddressedUse> uses;
  uses.reserve(node.uses.size());
  for (const Use& use : node.uses)
    uses.push_back({use.field, from.buffers[use.buffer].range.address + use.offset, use.bytes, use.access, 1,
                    use.settled, use.peer});
  const NodeId added = add(std::move(again), uses, options, node.traffic);
  if (node.kind == NodeKind::allocate || node.kind == NodeKind::free) {
    BufferState& memory = buffer_states_[plan_.nodes[id].uses[0].buffer];
    if (node.kind == NodeKind::free) memory.freed_by = id;
    memory.unallocated = false;
  }
  return added;
}

// Records the node's uses, and what it must follow because of them and of `after`.
void GraphBuilder::State::find_earlier(const PlanNode& node, std::span<const NodeId> after) {
  ranges_.clear();
  for (const Use& use : node.uses) {
    const ByteRange range = address_range(use);
    BufferState& state = buffer_states_[use.buffer];
    if (use.access == Access::frozen) {
      frozen_.add(range.address, range.end(), node.id);
      state.frozen = true;
    }
    state.written |= writes(use.access);
    ranges_.push_back({range, use.access, node.kind == NodeKind::allocate});
  }
  required_.clear();
  hazards_.place(node.id, ranges_, required_);
  order_with_loops(node);
  declared_.clear();
  for (const NodeId& earlier : after) declared_.push_back(earlier.index);
  declared_.insert(declared_.end(), also_after_.begin(), also_after_.end());
  std::sort(declared_.begin(), declared_.end());
  declared_.erase(std::unique(declared_.begin(), declared_.end()), declared_.end());
  for (const uint32_t earlier : declared_) plan_.after.push_back({node.id, earlier});

  // Both lists are by earlier node.
  auto declared = declared_.begin();
  auto required = required_.begin();
  while (declared != declared_.end() || required != required_.end()) {
    const uint32_t from = std::min(declared == declared_.end() ? kNone : *declared,
                                   required == required_.end() ? kNone : required->before);
    const auto first_reason = static_cast<uint32_t>(orders_.reasons.size());
    orders_.list.push_back({node.id, from, first_reason});
    if (declared != declared_.end() && *declared == from) {
      orders_.reasons.push_back({.hazard = Hazard::declared});
      ++declared;
    }
    for (; required != required_.end() && required->before == from; ++required) {
      const uint32_t buffer =
          required->use == kNone ? buffer_below(required->address) : node.uses[required->use].buffer;
      const uint64_t offset = required->address - plan_.buffers[buffer].range.address;
      const Reason reason{required->hazard, buffer, offset, required->bytes};
      if (std::find(orders_.reasons.begin() + first_reason, orders_.reasons.end(), reason) == orders_.reasons.end())
        orders_.reasons.push_back(reason);
    }
  }
}

// The driver runs a loop beside nothing else (loops_address in graph/node.h): whatever comes before it in the plan, and
// whatever comes after, is ordered with it as if all read what loops write, and what its body holds as if each node
// wrote there.
void GraphBuilder::State::order_with_loops(const PlanNode& node) {
  const auto sort_required = [&] {
    std::stable_sort(required_.begin(), required_.end(),
                     [](const RequiredOrder& a, const RequiredOrder& b) { return a.before < b.before; });
  };
  if (loop_around_ != 0 && node.id > 0) {
    required_.push_back({.before = node.id - 1,
                         .hazard = Hazard::waw,
                         .use = kNone,
                         .address = loop_around_,
                         .bytes = kConditionBytes});
    sort_required();
  }
  const bool is_loop = std::any_of(node.uses.begin(), node.uses.end(),
                                   [](const Use& use) { return use.field == kLoopsField && writes(use.access); });
  if (!is_loop && last_loop_ == kNone) return;
  RequiredOrder order{.use = kNone, .address = loops_address(plan_.name), .bytes = kConditionBytes};
  if (last_loop_ != kNone) {
    order.before = last_loop_;
    order.hazard = Hazard::raw;
    required_.push_back(order);
  }
  order.hazard = Hazard::war;
  if (is_loop)
    for (order.before = last_loop_ == kNone ? 0 : last_loop_ + 1; order.before < node.id; ++order.before)
      required_.push_back(order);
  sort_required();
  if (is_loop) last_loop_ = node.id;
}

AddressedUse GraphBuilder::State::memory_use(const PlanNode& node, const FieldInfo& field,
                                             std::span<const std::byte> arguments) const {
  RoleField value;
  std::memcpy(&value, arguments.data() + field.offset, sizeof value);
  if (field.role == Role::condition)  // its second member means nothing yet
    return {field.name, value.address, value.address == 0 ? 0 : kConditionBytes, Access::out, 1};
  AddressedUse use = elements_use(node,
                                  {.field = field.name,
                                   .element_bytes = field.element_bytes,
                                   .align_bytes = field.element_bytes,
                                   .access = access_of(field.role)},
                                  value.address, value.count);
  use.settled = field.role != Role::frozen && reads_before_wait(field.role);
  use.peer = field.role == Role::peer_out ? PeerUse::out : field.role == Role::peer_in ? PeerUse::in : PeerUse::none;
  return use;
}

AddressedUse GraphBuilder::State::elements_use(const PlanNode& node, const ArgumentUse& use, uint64_t address,
                                               uint64_t count) const {
  uint64_t bytes = 0, end = 0;
  if (__builtin_mul_overflow(count, use.element_bytes, &bytes) || __builtin_add_overflow(address, bytes, &end))
    refuse(node,
           fmt::format("field '{}' has {} elements of {} bytes at {:#x}, beyond the last address", use.field, count,
                       use.element_bytes, address),
           "pass a view of a declared buffer");
  return {use.field, address, bytes, use.access, use.align_bytes, false, use.peer};
}

void GraphBuilder::State::check_envelope(const PlanNode& node, const AddressedUse& use,
                                         const AddressedUse& envelope) const {
  if (use.bytes == 0) return;
  if (envelope.address <= use.address && use.address + use.bytes <= envelope.address + envelope.bytes) return;
  refuse(node,
         fmt::format("field '{}' is at {}, outside its envelope {}", use.field, in_hex(use.address, use.bytes),
                     in_hex(envelope.address, envelope.bytes)),
         "widen the envelope");
}

Use GraphBuilder::State::locate(const PlanNode& node, const AddressedUse& use) {
  // Divisions cost as much as the rest of this.
  const bool is_power = (use.align_bytes & (use.align_bytes - 1)) == 0;
  if (is_power ? (use.address & (use.align_bytes - 1)) != 0 : use.address % use.align_bytes != 0)
    refuse(node,
           fmt::format("field '{}' is at {:#x}, not a multiple of its element's {} bytes", use.field, use.address,
                       use.align_bytes),
           "align the view");
  const auto holds = [&](uint32_t buffer) {
    const NamedRange& range = plan_.buffers[buffer].range;
    return use.address + use.bytes <= range.address + range.bytes;
  };
  uint32_t index = buffer_below(use.address);
  if ((index == kNone || !holds(index)) &&
      (declare_outer_buffer(use.address, use.bytes) || declare_live_buffer(use.address, use.bytes)))
    index = buffer_below(use.address);
  if (index != kNone && holds(index))
    return {use.field,   index,   use.address - plan_.buffers[index].range.address, use.bytes, use.access,
            use.settled, use.peer};
  const NamedRange* below = nullptr;
  for (const State* builder = this; builder != nullptr && below == nullptr; builder = builder->outer_)
    if (const uint32_t near = builder->buffer_below(use.address); near != kNone)
      below = &builder->plan_.buffers[near].range;
  if (use.address >= kConditionBase)
    refuse(node, fmt::format("field '{}' is a condition of another plan", use.field),
           "make the condition with the builder whose conditional node obeys it");
  if (const std::string other = other_device_at(use.address); !other.empty())
    refuse(node,
           fmt::format("field '{}' is {}, memory of {}, and the plan is for {}", use.field,
                       in_hex(use.address, use.bytes), other, describe_device(*plan_.device)),
           "use memory of the plan's device, or declare the buffer with Live::peer where peer access is enabled");
  refuse(node,
         fmt::format("field '{}' is {}, outside every declared buffer; {}", use.field, in_hex(use.address, use.bytes),
                     below == nullptr ? "no buffer is declared below it"
                                      : fmt::format("the nearest below is '{}', {}", below->name,
                                                    in_hex(below->address, below->bytes))),
         "declare the buffer, or correct the view");
}

// Declares the buffer of a plan around this one that holds these bytes.
bool GraphBuilder::State::declare_outer_buffer(uint64_t address, uint64_t bytes) {
  const Buffer* found = outer_ == nullptr ? nullptr : outer_->known_buffer(address, bytes);
  if (found != nullptr) declare(found->range, {.live_in = true, .live_out = true, .peer = found->peer});
  return found != nullptr;
}

const Buffer* GraphBuilder::State::known_buffer(uint64_t address, uint64_t bytes) const {
  for (const State* builder = this; builder != nullptr; builder = builder->outer_) {
    const uint32_t below = builder->buffer_below(address);
    if (below == kNone) continue;
    const Buffer& buffer = builder->plan_.buffers[below];
    if (bytes <= buffer.range.bytes && address - buffer.range.address <= buffer.range.bytes - bytes) return &buffer;
  }
  return nullptr;
}

std::string GraphBuilder::State::other_device_at(uint64_t address) const {
  if (is_allocated(address) || is_array(address) || address >= kConditionBase) return "";
  const auto known = known_memory_at(*plan_.device, address);
  if (!known || known->host || known->device == plan_.device->properties().ordinal) return "";
  return describe_device(plan_.device->driver(), known->device);
}

// Declares the whole buffer of the device that holds these bytes, unless a part of it is declared or its name is taken.
bool GraphBuilder::State::declare_live_buffer(uint64_t address, uint64_t bytes) {
  const LiveBuffer live = plan_.device->buffers().at(address);
  if (live.serial == 0 || bytes > live.address + live.bytes - address) return false;
  const std::string name = plan_.device->buffers().name_at(live.address);
  if (name.empty()) return false;
  for (const State* builder = this; builder != nullptr; builder = builder->outer_)
    if (builder->overlapping(live.address, live.bytes) != nullptr || builder->buffer_named(name) != nullptr)
      return false;
  declare({name, live.address, live.bytes, "activation"}, {.live_in = is_body_, .live_out = true});
  return true;
}

// Those that declare_live_buffer() declared for a node that is refused.
void GraphBuilder::State::forget_buffers_from(size_t first) {
  if (plan_.buffers.size() == first) return;
  for (size_t i = first; i < plan_.buffers.size(); ++i) buffers_by_address_.erase(plan_.buffers[i].range.address);
  plan_.buffers.erase(plan_.buffers.begin() + static_cast<std::ptrdiff_t>(first), plan_.buffers.end());
  buffer_states_.resize(first);
  buffer_names_ = NameTable();
  for (uint32_t i = 0; i < first; ++i) buffer_names_.insert(plan_.buffers[i].range.name, i);
}

void GraphBuilder::State::check_overlaps(const PlanNode& node) const {
  const auto refuse_pair = [&](const Use& a, const Use& b) {
    refuse(node,
           fmt::format("field '{}' ({}) uses {} and field '{}' ({}) uses {}", a.field, to_string(a.access),
                       describe_range(plan_, a.buffer, a.offset, a.bytes), b.field, to_string(b.access),
                       describe_range(plan_, b.buffer, b.offset, b.bytes)),
           "give each field memory of its own, or use one InOut field");
  };
  // PitchedRows of a copy can be many: their order by address shows neighbours that overlap. Otherwise every pair is
  // looked at, since two reads may overlap and hide a write after them.
  if (node.uses.size() <= kMaxFields) {
    for (size_t i = 0; i < node.uses.size(); ++i)
      for (size_t j = i + 1; j < node.uses.size(); ++j)
        if ((writes(node.uses[i].access) || writes(node.uses[j].access)) && overlap(node.uses[i], node.uses[j]))
          refuse_pair(node.uses[i], node.uses[j]);
    return;
  }
  std::vector<const Use*> sorted;
  for (const Use& use : node.uses) sorted.push_back(&use);
  std::sort(sorted.begin(), sorted.end(),
            [](const Use* a, const Use* b) { return std::tie(a->buffer, a->offset) < std::tie(b->buffer, b->offset); });
  const Use *last = nullptr, *last_write = nullptr;  // those that reach furthest so far
  for (const Use* use : sorted) {
    if (last_write != nullptr && overlap(*last_write, *use)) refuse_pair(*last_write, *use);
    if (writes(use->access) && last != nullptr && overlap(*last, *use)) refuse_pair(*last, *use);
    const auto reaches_further = [&](const Use* a) {
      return a == nullptr || std::tie(a->buffer) < std::tie(use->buffer) ||
             a->offset + a->bytes < use->offset + use->bytes;
    };
    if (reaches_further(last)) last = use;
    if (writes(use->access) && reaches_further(last_write)) last_write = use;
  }
}

void GraphBuilder::State::check_initialised(const PlanNode& node) const {
  for (const Use& use : node.uses) {
    const Buffer& buffer = plan_.buffers[use.buffer];
    if (!reads(use.access) || buffer.live_in) continue;
    const auto hole = hazards_.first_unwritten(address_range(use));
    if (!hole) continue;
    const uint64_t offset = hole->address - buffer.range.address;
    refuse(node,
           fmt::format("field '{}' reads {}, and no earlier node writes {}", use.field,
                       describe_range(plan_, use.buffer, use.offset, use.bytes),
                       describe_range(plan_, use.buffer, offset, hole->bytes)),
           "write it first, or declare the buffer live-in");
  }
}

// A frozen range may be read before the wait, where no edge protects it: so no node of the plan may write it, be it
// earlier or later.
void GraphBuilder::State::check_frozen(const PlanNode& node) const {
  for (const Use& use : node.uses) {
    const BufferState& state = buffer_states_[use.buffer];
    const auto text = [&] { return describe_range(plan_, use.buffer, use.offset, use.bytes); };
    if (use.access == Access::frozen && state.written) {
      if (const auto written = hazards_.first_written(address_range(use)))
        refuse(node,
               fmt::format("field '{}' declares {} frozen, and node '{}' writes there", use.field, text(),
                           plan_.nodes[written->node].name),
               "make the field In");
    } else if (writes(use.access) && state.frozen) {
      const ByteRange range = address_range(use);
      if (const std::optional<uint32_t> reader = frozen_.node_of(range.address, range.end()))
        refuse(node,
               fmt::format("field '{}' writes {}, which node '{}' declares frozen", use.field, text(),
                           plan_.nodes[*reader].name),
               "make the reader's field In");
    }
  }
}

ByteRange GraphBuilder::State::address_range(const Use& use) const {
  return {plan_.buffers[use.buffer].range.address + use.offset, use.bytes, use.buffer};
}

uint32_t GraphBuilder::State::buffer_below(uint64_t address) const {
  const auto above = buffers_by_address_.upper_bound(address);
  return above == buffers_by_address_.begin() ? kNone : std::prev(above)->second;
}

const Buffer* GraphBuilder::State::buffer_named(std::string_view name) const {
  const uint32_t found =
      buffer_names_.find(name, [&](uint32_t id) -> std::string_view { return plan_.buffers[id].range.name; });
  return found == kNone ? nullptr : &plan_.buffers[found];
}

const Buffer* GraphBuilder::State::overlapping(uint64_t address, uint64_t bytes) const {
  const uint32_t below = buffer_below(address + bytes - 1);
  if (below == kNone) return nullptr;
  const Buffer& buffer = plan_.buffers[below];
  return buffer.range.address + buffer.range.bytes > address ? &buffer : nullptr;
}

uint32_t GraphBuilder::State::node_named(std::string_view name) const {
  return node_names_.find(name, [&](uint32_t id) -> std::string_view { return plan_.nodes[id].name; });
}

void GraphBuilder::State::refuse(const PlanNode& node, std::string detail, std::string advice) const {
  throw Error({.doing = "add node",
               .object = node.name,
               .detail = fmt::format("in plan '{}': {}", plan_.name, detail),
               .advice = std::move(advice)});
}

Plan GraphBuilder::State::finish(EdgePolicy policy) {
  for (size_t i = 0; i < plan_.conditions.size(); ++i)
    if (const ConditionInfo& condition = plan_.conditions[i]; obeyed_by_[i] == kNone)
      throw Error({.doing = "finish plan",
                   .object = plan_.name,
                   .detail = fmt::format("no conditional node obeys the condition '{}'",
                                         plan_.buffers[buffer_below(condition.address)].range.name),
                   .advice = "add its conditional node, or do not make the condition"});
  check_all_freed();
  if (loops_nest_) policy = EdgePolicy::serial;
  for (PendingBodies& pending : pending_bodies_)
    for (std::unique_ptr<State>& body : pending.bodies)
      plan_.nodes[pending.node].bodies.push_back(std::make_shared<const Plan>(body->finish(policy)));
  const bool device_allows = plan_.device->properties().has_programmatic_launch();
  plan_.edges = derive_edges(plan_.nodes, orders_, policy, device_allows, plan_.memory.get());
  const std::vector<MissingOrder> missing = missing_orders(plan_);
  if (!missing.empty())
    throw Error({.doing = "finish plan",
                 .object = plan_.name,
                 .detail = fmt::format("{} orders are missing, the first: {}", missing.size(), describe(missing[0])),
                 .advice = "report this: the edges and the check disagree"});
  return std::move(plan_);
}

}  // namespace nodewright
