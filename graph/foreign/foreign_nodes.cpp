// The nodes of GraphBuilder whose kernels Nodewright did not compile: their arguments, and the pointers among these.
#include <fmt/format.h>

#include <utility>

#include "graph/foreign/stray_pointers.h"
#include "graph/graph_builder.h"

namespace nodewright {

NodeId GraphBuilder::add_foreign_kernel(std::string_view name, const LoadedKernel& kernel, const ForeignLaunch& how,
                                        std::span<const std::byte> arguments, std::span<const FieldInfo> fields,
                                        std::span<const ArgumentUse> uses) {
  PlanNode node = kernel_node(name, kernel, how.shape, how.attributes);
  node.waits_for_inputs = how.waits_for_inputs;
  if (std::string problem = parameter_problem(kernel, fields); !problem.empty())
    refuse(node, std::move(problem), "pass the arguments that the kernel's source declares");
  node.arguments.assign(arguments.begin(), arguments.end());
  node.fields = fields;

  addressed_.clear();
  for (const ArgumentUse& use : uses) {
    if (node.fields[use.argument].role == Role::condition && use.address == 0)
      refuse(node, fmt::format("argument '{}' is no condition", use.field),
             "pass what GraphBuilder::condition returned");
    if (use.count == 0 && !use.opaque)
      refuse(node, fmt::format("argument '{}' ({}) is empty", use.field, to_string(use.access)),
             "pass a view of a declared buffer, or opaque(pointer) if this launch does not use it");
    const AddressedUse own = elements_use(node, use, use.address, use.count);
    addressed_.push_back(elements_use(node, use, use.widest_address, use.widest_count));
    check_envelope(node, own, addressed_.back());
    if (use.peer != PeerUse::none && !how.exchange)
      refuse(node, fmt::format("argument '{}' is memory of packets, and the launch names no exchange", use.field),
             "set ForeignLaunch::exchange to its number in the plan");
    if (use.peer != PeerUse::none) node.exchange = how.exchange;
  }
  check_pointers(node, uses, true);
  return add(std::move(node), addressed_, how.traffic, how.after);
}

void GraphBuilder::check_pointers(const PlanNode& node, std::span<const ArgumentUse> uses, bool foreign) const {
  const auto declared = [&](uint64_t address) -> const NamedRange* {
    const Buffer* buffer = known_buffer(address, 1);
    return buffer == nullptr ? nullptr : &buffer->range;
  };
  for (size_t i = 0; i < node.fields.size(); ++i) {
    const std::span<const std::byte> value(node.arguments.data() + node.fields[i].offset, node.fields[i].bytes);
    if (auto stray = find_stray_pointer(*plan_.device, node.fields[i], i, value, uses, foreign, declared))
      refuse(node, std::move(stray->detail), std::move(stray->advice));
  }
}

}  // namespace nodewright
