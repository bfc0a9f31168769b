#include "graph/foreign/stray_pointers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/memory/known_memory.h"

namespace nodewright {
namespace {

constexpr std::string_view kFieldAdvice =
    "make the field In<T>, Out<T> or InOut<T>, and pass a view: then the plan knows what the kernel does there";
constexpr std::string_view kArgumentAdvice =
    "pass reads(view), writes(view) or updates(view), or opaque(pointer) for memory that this launch does not use; for "
    "a struct, list them in with_uses(value, ...)";

bool explains(const ArgumentUse& use, uint64_t address) {
  if (use.widest_count == 0) return address == use.address;  // opaque
  return address >= use.widest_address && (address - use.widest_address) / use.element_bytes < use.widest_count;
}

std::string buffer_text(std::string_view name, uint64_t begin, uint64_t bytes) {
  return fmt::format("buffer '{}', {:#x} + {} bytes", name, begin, bytes);
}

// Memory that no plan has declared, in words; empty where there is none.
std::string memory_at(const Device& device, uint64_t address) {
  if (address >> kAddressBits != 0) return "";
  if (const LiveBuffer live = device.buffers().at(address); live.serial != 0)
    return buffer_text(device.buffers().name_at(address), live.address, live.bytes);
  const auto known = known_memory_at(device, address);
  if (!known) return "";
  return fmt::format("{} memory that was allocated elsewhere, {:#x} + {} bytes", known->host ? "pinned" : "device",
                     known->address, known->bytes);
}

}  // namespace

std::optional<StrayPointer> find_stray_pointer(const Device& device, const FieldInfo& field, size_t argument,
                                               std::span<const std::byte> value, std::span<const ArgumentUse> uses,
                                               bool foreign, const DeclaredAt& declared) {
  if (is_memory(field.role)) return std::nullopt;
  uint64_t address = 0;
  for (size_t offset = 0; offset + sizeof address <= value.size(); offset += sizeof(uint32_t)) {
    std::memcpy(&address, value.data() + offset, sizeof address);
    if (address < kFirstAddress) continue;
    const auto explained = [&](const ArgumentUse& use) { return use.argument == argument && explains(use, address); };
    if (std::any_of(uses.begin(), uses.end(), explained)) continue;
    const std::string holds = fmt::format("{} '{}' holds {:#x}{}", foreign ? "argument" : "field", field.name, address,
                                          field.bytes == sizeof address ? "" : fmt::format(" at byte {}", offset));
    const NamedRange* range = declared(address);
    if (range != nullptr && address >= kConditionBase)
      return StrayPointer{
          fmt::format("{}, which stands for the condition '{}' in the plan alone: the driver makes its "
                      "handle when a graph is built",
                      holds, range->name),
          foreign ? "pass the ConditionHandle as an argument of its own" : "make the field a Condition"};
    const std::string memory =
        range != nullptr ? buffer_text(range->name, range->address, range->bytes) : memory_at(device, address);
    if (!memory.empty())
      return StrayPointer{
          fmt::format("{}, an address in {}, and the launch does not say what the kernel does there", holds, memory),
          std::string(foreign ? kArgumentAdvice : kFieldAdvice)};
  }
  return std::nullopt;
}

}  // namespace nodewright
