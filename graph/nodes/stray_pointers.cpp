#include "graph/nodes/stray_pointers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/memory/known_memory.h"

namespace nodewright {
namespace {

// No system maps anything below; most scalars are smaller.
constexpr uint64_t kFirstAddress = 64 << 10;
// Addresses of the host and of devices have 57 bits at most (five-level paging).
constexpr unsigned kAddressBits = 57;

bool explains(const ArgumentUse& use, uint64_t address) {
  if (use.widest_count == 0) return address == use.address;  // opaque
  return address >= use.widest_address && (address - use.widest_address) / use.element_bytes < use.widest_count;
}

std::string memory_at(const Device& device, uint64_t address, const DeclaredAt& declared) {
  const auto text = [](std::string_view what, std::string_view name, uint64_t begin, uint64_t bytes) {
    return fmt::format("{} '{}', {:#x} + {} bytes", what, name, begin, bytes);
  };
  if (const NamedRange* range = declared(address)) return text("buffer", range->name, range->address, range->bytes);
  if (address >> kAddressBits != 0) return "";
  if (const LiveBuffer live = device.buffers().at(address); live.serial != 0)
    return text("buffer", device.buffers().name_at(address), live.address, live.bytes);
  const auto known = known_memory_at(device, address);
  if (!known) return "";
  return fmt::format("{} memory that was allocated elsewhere, {:#x} + {} bytes", known->host ? "pinned" : "device",
                     known->address, known->bytes);
}

}  // namespace

std::optional<StrayPointer> find_stray_pointer(const Device& device, const FieldInfo& field, size_t argument,
                                               std::span<const std::byte> value, std::span<const ArgumentUse> uses,
                                               const DeclaredAt& declared) {
  if (is_memory(field.role)) return std::nullopt;
  uint64_t address = 0;
  for (size_t offset = 0; offset + sizeof address <= value.size(); offset += sizeof(uint32_t)) {
    std::memcpy(&address, value.data() + offset, sizeof address);
    if (address < kFirstAddress) continue;
    const auto explained = [&](const ArgumentUse& use) { return use.argument == argument && explains(use, address); };
    if (std::any_of(uses.begin(), uses.end(), explained)) continue;
    if (std::string memory = memory_at(device, address, declared); !memory.empty())
      return StrayPointer{offset, address, std::move(memory)};
  }
  return std::nullopt;
}

std::string describe(const StrayPointer& stray, const FieldInfo& field) {
  const std::string at = field.bytes == sizeof stray.address ? "" : fmt::format(" at byte {}", stray.offset);
  return fmt::format(
      "argument '{}' holds {:#x}{}, an address in {}, and the launch does not say what the kernel does "
      "there",
      field.name, stray.address, at, stray.memory);
}

}  // namespace nodewright
