// The nodes of GraphBuilder whose kernels Nodewright did not compile: their arguments, and the pointers among these.
#include <fmt/format.h>

#include <utility>

#include "graph/builder_state.h"
#include "graph/foreign/stray_pointers.h"

namespace nodewright {

NodeId GraphBuilder::add_foreign_kernel(std::string_view name, const LoadedKernel& kernel, const LaunchShape& shape,
                                        const NodeOptions& options, std::span<const std::byte> arguments,
                                        std::span<const FieldInfo> fields, std::span<const ArgumentUse> uses) {
  PlanNode node = state_->kernel_node(name, kernel, shape, options.attributes);
  node.waits_for_inputs = options.waits_for_inputs;
  if (!options.envelope.bytes.empty())
    state_->refuse(node, "its options have an envelope, and the kernel takes no argument struct of the library",
                   "pass reads(view).within(whole), or the same of writes and updates");
  if (std::string problem = parameter_problem(kernel, fields); !problem.empty())
    state_->refuse(node, std::move(problem), "pass the arguments that the kernel's source declares");
  node.arguments.resize(arguments.size());
  if (!arguments.empty()) std::memcpy(node.arguments.data(), arguments.data(), arguments.size());
  node.fields = fields;

  state_->addressed_.clear();
  for (const ArgumentUse& use : uses) {
    if (node.fields[use.argument].role == Role::condition && use.address == 0)
      state_->refuse(node, fmt::format("argument '{}' is no condition", use.field),
                     "pass what GraphBuilder::condition returned");
    if (use.count == 0 && !use.opaque)
      state_->refuse(node, fmt::format("argument '{}' ({}) is empty", use.field, to_string(use.access)),
                     "pass a view of a declared buffer, or opaque(pointer) if this launch does not use it");
    const AddressedUse own = state_->elements_use(node, use, use.address, use.count);
    state_->addressed_.push_back(state_->elements_use(node, use, use.widest_address, use.widest_count));
    state_->check_envelope(node, own, state_->addressed_.back());
    if (use.peer != PeerUse::none && !options.exchange)
      state_->refuse(node,
                     fmt::format("argument '{}' is memory of packets, and the launch names no exchange", use.field),
                     "set NodeOptions::exchange to its number in the plan");
    if (use.peer != PeerUse::none) node.exchange = options.exchange;
  }
  if (options.exchange && !node.exchange)
    state_->refuse(node,
                   fmt::format("its options name exchange {}, and no argument is memory of packets", *options.exchange),
                   "pass sends(view) or takes(view), or no exchange");
  state_->check_pointers(node, uses, true);
  return state_->add(std::move(node), state_->addressed_, options);
}

void GraphBuilder::State::check_pointers(const PlanNode& node, std::span<const ArgumentUse> uses, bool foreign) const {
  const auto declared = [&](uint64_t address) -> const NamedRange* {
    const Buffer* buffer = known_buffer(address, 1);
    return buffer == nullptr ? nullptr : &buffer->range;
  };
  for (size_t i = 0; i < node.fields.size(); ++i) {
    if (is_memory(node.fields[i].role)) continue;
    const std::span<const std::byte> value(node.arguments.data() + node.fields[i].offset, node.fields[i].bytes);
    if (auto stray = find_stray_pointer(*plan_.device, node.fields[i], i, value, uses, foreign, declared))
      refuse(node, std::move(stray->detail), std::move(stray->advice));
  }
}

}  // namespace nodewright
