#include "graph/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/builder_state.h"
#include "graph/edges/touched_ranges.h"

namespace nodewright {

NamedRange range_of(const PinnedBuffer& buffer, std::string kind) {
  return {buffer.name(), reinterpret_cast<uint64_t>(buffer.data()), buffer.bytes(), std::move(kind)};
}
NamedRange range_of(const DeviceBuffer& buffer, std::string kind) {
  return {buffer.name(), buffer.address(), buffer.bytes(), std::move(kind)};
}

GraphBuilder::GraphBuilder(Device& device, std::string name, PlanFacts facts)
    : state_(std::make_unique<State>(device, std::move(name), std::move(facts))) {}
GraphBuilder::GraphBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}
GraphBuilder::~GraphBuilder() = default;

size_t GraphBuilder::node_count() const { return state_->plan_.nodes.size(); }
const std::string& GraphBuilder::name() const { return state_->plan_.name; }
Device& GraphBuilder::device() const { return *state_->plan_.device; }

void GraphBuilder::declare(NamedRange range, Live live) { state_->declare(std::move(range), live); }

Plan GraphBuilder::finish(EdgePolicy policy) && { return state_->finish(policy); }

void GraphBuilder::reserve(size_t nodes) { state_->reserve(nodes); }

void GraphBuilder::keep_object(std::string_view name, std::shared_ptr<const void> object) {
  const bool is_taken = std::ranges::find(state_->plan_.kept, name, &KeptObject::name) != state_->plan_.kept.end();
  if (object == nullptr || name.empty() || is_taken)
    throw Error({.doing = "keep object",
                 .object = std::string(name),
                 .detail = fmt::format("in plan '{}': {}", state_->plan_.name,
                                       object == nullptr ? "there is none"
                                       : name.empty()    ? "its name is empty"
                                                         : "another object has the name"),
                 .advice = "pass an object and a name of its own"});
  state_->plan_.kept.push_back({std::string(name), std::move(object)});
}

GraphBuilder::Scope::~Scope() {
  builder_.state_->prefix_.resize(prefix_chars_);
  builder_.state_->layer_chars_ = layer_chars_;
}

GraphBuilder::Scope GraphBuilder::scope(std::string_view name) {
  const size_t prefix_chars = state_->prefix_.size();
  const uint32_t layer_chars = state_->layer_chars_;
  state_->prefix_.append(name).push_back('.');
  if (prefix_chars == 0) state_->layer_chars_ = static_cast<uint32_t>(name.size());
  return Scope(*this, prefix_chars, layer_chars);
}

// Between fields, which lie in their order: a plan says the same whatever the caller's stack held there.
static void zero_padding(std::span<std::byte> arguments, std::span<const FieldInfo> fields) {
  size_t end = 0;
  for (const FieldInfo& field : fields) {
    if (field.offset > end) std::memset(arguments.data() + end, 0, field.offset - end);
    end = field.offset + field.bytes;
  }
  if (end < arguments.size()) std::memset(arguments.data() + end, 0, arguments.size() - end);
}

NodeId GraphBuilder::add_kernel(std::string_view name, const LoadedKernel* kernel, const LaunchShape& shape,
                                std::span<const std::byte> arguments, std::span<const FieldInfo> fields,
                                const NodeOptions& options) {
  if (kernel == nullptr)
    state_->refuse(state_->new_node(name, NodeKind::kernel), "it has no kernel",
                   "make the kernel with KernelCache::kernel");
  PlanNode node = state_->kernel_node(name, *kernel, shape, options.attributes);
  node.waits_for_inputs = kernel->waits_for_inputs;
  if (kernel->args_bytes != arguments.size())
    state_->refuse(node,
                   fmt::format("the arguments have {} bytes and kernel '{}' takes {}", arguments.size(), kernel->name,
                               kernel->args_bytes),
                   "launch the kernel with the struct that it was compiled with");
  if (options.waits_for_inputs || options.exchange)
    state_->refuse(node, "its options say of a foreign kernel whether it waits or which exchange it takes part in",
                   "leave that out: the code and the argument struct of this kernel say it");
  const Envelope& envelope = options.envelope;
  if (!envelope.bytes.empty() && envelope.fields.data() != fields.data())
    state_->refuse(node, fmt::format("its envelope is another argument struct than kernel '{}' takes", kernel->name),
                   "pass the launch's own struct with wider ranges");
  node.arguments.resize(arguments.size());  // an assign would construct byte by byte
  if (!arguments.empty()) std::memcpy(node.arguments.data(), arguments.data(), arguments.size());
  node.fields = fields;
  zero_padding(node.arguments, fields);

  state_->addressed_.clear();
  for (const FieldInfo& field : fields) {
    if (!is_memory(field.role)) continue;
    AddressedUse& use = state_->addressed_.emplace_back(state_->memory_use(node, field, arguments));
    if (use.bytes == 0 && !field.optional && field.role != Role::condition)
      state_->refuse(node, fmt::format("field '{}' ({}) is empty", field.name, to_string(use.access)),
                     "pass a view of a declared buffer, or make the field Optional if the kernel does without");
    if (envelope.bytes.empty() || field.role == Role::condition) continue;
    const AddressedUse wide = state_->memory_use(node, field, envelope.bytes);
    state_->check_envelope(node, use, wide);
    use = wide;
  }
  state_->check_pointers(node, {}, false);
  state_->note_exchange(node);
  return state_->add(std::move(node), state_->addressed_, options);
}

CopyNode GraphBuilder::copy(std::string_view name, const CopyEnd& to, const CopyEnd& from, uint64_t bytes,
                            const NodeOptions& options) {
  return copy_rows(name, to, from, {.bytes = bytes}, options);
}

CopyNode GraphBuilder::copy_rows(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyRows& shape,
                                 const NodeOptions& options) {
  if (to.array != nullptr || from.array != nullptr)
    return state_->add_array_copy(
        name, to, from,
        {.bytes = shape.bytes, .rows = shape.rows, .to_pitch = shape.to_pitch, .from_pitch = shape.from_pitch},
        options);
  PlanNode node = state_->new_node(name, NodeKind::memcpy);
  if (to.host && from.host)
    state_->refuse(node, "both ends are host memory", "copy on the host, or through device memory");
  if (shape.bytes == 0 || shape.rows == 0) state_->refuse(node, "0 bytes to copy", "copy at least one byte");
  state_->check_rows(node, "to", {shape.bytes, shape.rows, shape.to_pitch}, to.bytes);
  state_->check_rows(node, "from", {shape.bytes, shape.rows, shape.from_pitch}, from.bytes);
  const bool one_row = shape.rows == 1;
  node.copy = {to.address,
               from.address,
               shape.bytes,
               to.host,
               from.host,
               shape.rows,
               one_row ? 0 : shape.to_pitch,
               one_row ? 0 : shape.from_pitch};
  std::vector<AddressedUse> uses;
  uses.reserve(2 * shape.rows);
  for_each_row(node.copy, [&](std::string_view field, uint64_t address, uint64_t bytes, Access access) {
    uses.push_back({field, address, bytes, access, 1});
  });
  return {state_->add(std::move(node), uses, options)};
}

FillNode GraphBuilder::add_fill(std::string_view name, uint64_t to, uint64_t bytes, const FillRows& shape,
                                std::span<const unsigned char> pattern, const NodeOptions& options) {
  PlanNode node = state_->new_node(name, NodeKind::memset);
  if (shape.count == 0 || shape.rows == 0) state_->refuse(node, "0 bytes to fill", "fill at least one element");
  const bool driver_takes_it = pattern.size() == 2 || pattern.size() == 4;  // as it takes single bytes
  if (!driver_takes_it && std::any_of(pattern.begin(), pattern.end(), [&](auto byte) { return byte != pattern[0]; }))
    state_->refuse(node, fmt::format("a value of {} bytes that differ from each other", pattern.size()),
                   "fill elements of 1, 2 or 4 bytes, or a value whose bytes are all equal");
  if (shape.count > std::numeric_limits<uint64_t>::max() / pattern.size())
    state_->refuse(node, fmt::format("rows of {} elements of {} bytes", shape.count, pattern.size()),
                   "fill fewer elements");
  const PitchedRows rows{shape.count * pattern.size(), shape.rows, shape.rows == 1 ? 0 : shape.pitch};
  state_->check_rows(node, "to", rows, bytes);
  const uint32_t element_bytes = driver_takes_it ? static_cast<uint32_t>(pattern.size()) : 1;
  if (rows.pitch % element_bytes != 0)
    state_->refuse(node,
                   fmt::format("rows of elements of {} bytes lie {} bytes apart in 'to'", element_bytes, rows.pitch),
                   "pass a pitch that is a multiple of the element");
  node.fill = {.to = to,
               .element_bytes = element_bytes,
               .count = rows.bytes / element_bytes,
               .rows = rows.rows,
               .pitch = rows.pitch};
  std::memcpy(&node.fill.value, pattern.data(), element_bytes);
  std::vector<AddressedUse> uses;
  uses.reserve(rows.rows);
  for_each_row(node.fill, [&](std::string_view field, uint64_t address, uint64_t row_bytes, Access access) {
    uses.push_back({field, address, row_bytes, access, element_bytes});
  });
  return {state_->add(std::move(node), uses, options)};
}

NodeId GraphBuilder::empty(std::string_view name, const NodeOptions& options) {
  return state_->add(state_->new_node(name, NodeKind::empty), {}, options);
}

NodeId GraphBuilder::node(std::string_view name) const {
  const uint32_t found = state_->node_named(name);
  if (found == State::kNone)
    throw Error({.doing = "look up node",
                 .object = std::string(name),
                 .detail = fmt::format("plan '{}' has no node of that name yet", state_->plan_.name),
                 .advice = "pass the name with all its scopes, as dumps show it, once the node is added"});
  return {found, state_->plan_.id};
}

}  // namespace nodewright
