#include "graph/read/read_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "graph/edges/nested_uses.h"
#include "graph/foreign/stray_pointers.h"
#include "runtime/memory/known_memory.h"

namespace nodewright {

void ReadMemory::add_allocation(const std::string& name, uint64_t address, uint64_t bytes) {
  names_.insert(name);
  join(address, {.end = address + bytes, .name = name, .kind = "allocation", .used = true, .of_graph = true});
}

void ReadMemory::add(const Use& use) {
  const bool known = knows(use.offset);
  const uint64_t end = use.offset + std::max<uint64_t>(use.bytes, 1);
  if (auto range = ranges_.end(); known && (range = holding(use.offset))->second.end >= end)
    range->second.used = true;
  else
    join(use.offset, {.end = end, .name = {}, .kind = std::string(known ? "" : kUnknownMemory), .used = true});
}

bool ReadMemory::knows(uint64_t address) {
  if (const auto range = holding(address); range != ranges_.end() && range->second.kind != kUnknownMemory) return true;
  if (is_array(address)) {
    const uint64_t begin = address - address % kArrayBytes;
    join(begin, {.end = begin + device_.arrays().bytes_at(begin), .name = {}, .kind = "array"});
    return true;
  }
  if (address < kFirstAddress || address >> kAddressBits != 0) return false;
  const auto known = known_memory_at(device_, address);
  if (!known || known->bytes == 0) return false;
  const bool peer = !known->host && known->device != device_.properties().ordinal;
  const char* const kind = known->host ? "pinned memory" : peer ? "memory of another device" : "device memory";
  join(known->address, {.end = known->address + known->bytes, .name = {}, .kind = kind, .peer = peer});
  return true;
}

uint64_t ReadMemory::bytes_from(uint64_t address) {
  return knows(address) ? holding(address)->second.end - address : 0;
}

ReadMemory::Ranges::iterator ReadMemory::holding(uint64_t address) {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return ranges_.end();
  const auto range = std::prev(after);
  return address < range->second.end ? range : ranges_.end();
}

ReadMemory::Ranges::iterator ReadMemory::join(uint64_t begin, Range range) {
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second.end > begin) --next;
  while (next != ranges_.end() && next->first < range.end) {
    Range& other = next->second;
    begin = std::min(begin, next->first);
    range.end = std::max(range.end, other.end);
    if (!other.name.empty()) range.name = std::move(other.name);
    if (other.of_graph || range.kind.empty() || range.kind == kUnknownMemory) range.kind = std::move(other.kind);
    range.used |= other.used;
    range.of_graph |= other.of_graph;
    range.peer |= other.peer;
    next = ranges_.erase(next);
  }
  return ranges_.emplace(begin, std::move(range)).first;
}

void ReadMemory::place(Plan& plan) {
  std::map<const Range*, uint32_t> buffers;
  for (PlanNode& node : plan.nodes) {
    std::vector<const Plan*> bodies;
    for (const auto& body : node.bodies) {
      place(const_cast<Plan&>(*body));  // which read_graph made, and nobody has seen yet
      bodies.push_back(body.get());
    }
    for (const NestedUse& use : nested_uses(bodies, node.kind == NodeKind::conditional))
      node.uses.push_back(
          {.field = use.field, .offset = use.begin, .bytes = use.end - use.begin, .access = use.access()});
    for (Use& use : node.uses) {
      place(plan, use, buffers);
      if (reads(use.access)) node.traffic.bytes_read += use.bytes;
      if (writes(use.access)) node.traffic.bytes_written += use.bytes;
    }
    for (Use& use : const_cast<ReadNode&>(*node.read).possible) place(plan, use, buffers);
  }
}

void ReadMemory::place(Plan& plan, Use& use, std::map<const Range*, uint32_t>& buffers) {
  const auto found = holding(use.offset);
  Range& range = found->second;
  const auto [buffer, is_new] = buffers.emplace(&range, static_cast<uint32_t>(plan.buffers.size()));
  if (is_new) {
    name(found->first, range);
    plan.buffers.push_back({.range = {range.name, found->first, range.end - found->first,
                                      range.used ? range.kind : "possible: " + range.kind},
                            .live_in = !range.of_graph,
                            .live_out = !range.of_graph,
                            .peer = range.peer});
  }
  use.buffer = buffer->second;
  use.offset -= found->first;
  if (use.bytes == 0) use.bytes = range.end - found->first - use.offset;
}

void ReadMemory::name(uint64_t begin, Range& range) {
  if (!range.name.empty()) return;
  const std::string own = device_.buffers().name_at(begin);
  std::string base = own.empty() ? range.kind.substr(0, range.kind.find(' ')) : own;
  range.name = own;
  while (range.name.empty() || !names_.insert(range.name).second)
    range.name = fmt::format("{}.{}", base, numbers_[base]++);
}

}  // namespace nodewright
