#include "graph/edges/allocated_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/error.h"

namespace nodewright {

uint64_t AllocatedMemory::look_up(uint64_t planned) const {
  const auto above = places_.upper_bound(planned);
  if (above != places_.begin()) {
    const auto& [begin, place] = *std::prev(above);
    if (planned - begin < place.bytes) return place.address + (planned - begin);
  }
  throw Error({.doing = "find memory of plan",
               .object = plan_name_,
               .detail = fmt::format("no node of it allocates the memory planned at {:#x}", planned),
               .advice = "use an allocation in its own plan, or in plans that are children or bodies there"});
}

uint64_t AllocatedMemory::planned(uint64_t address) const {
  for (const auto& [begin, place] : places_)
    if (address - place.address < place.bytes) return begin + (address - place.address);
  return address;
}

CopyParameters AllocatedMemory::placed(CopyParameters copy) const {
  copy.to = address_of(copy.to);
  copy.from = address_of(copy.from);
  return copy;
}

FillParameters AllocatedMemory::placed(FillParameters fill) const {
  fill.to = address_of(fill.to);
  return fill;
}

void AllocatedMemory::place_arguments(const PlanNode& node, std::span<std::byte> arguments) const {
  for (const FieldInfo& field : node.fields) place_field(field, arguments.data() + field.offset);
}

// A memory field and a pointer of a foreign kernel both begin with the address.
void AllocatedMemory::place_field(const FieldInfo& field, std::byte* value) const {
  if (!is_memory(field.role) || field.role == Role::condition) return;
  uint64_t address = 0;
  std::memcpy(&address, value, sizeof address);
  address = address_of(address);
  std::memcpy(value, &address, sizeof address);
}

bool touches_allocated(const Plan& plan, const PlanNode& node) {
  return std::any_of(node.uses.begin(), node.uses.end(),
                     [&](const Use& use) { return is_allocated(plan.buffers[use.buffer].range.address); });
}

const PlanNode* first_allocation(const Plan& plan) {
  const auto found = std::find_if(plan.nodes.begin(), plan.nodes.end(),
                                  [](const PlanNode& node) { return node.kind == NodeKind::allocate; });
  return found == plan.nodes.end() ? nullptr : &*found;
}

}  // namespace nodewright
