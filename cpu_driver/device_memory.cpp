// A span is [guard page, pages, guard page]; the allocation ends at the upper guard, to 256 bytes.
#include "cpu_driver/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace nodewright::cpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignment = 256;  // what cuMemAlloc promises
constexpr size_t kRememberedFrees = 1024;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// `several`: memory of more than one device is in use, and the text says whose.
std::string text(const DeviceMemory::Block& block, bool several) {
  char place[64];
  snprintf(place, sizeof place, " (0x%llx, %llu bytes)", static_cast<unsigned long long>(block.address),
           static_cast<unsigned long long>(block.bytes));
  const std::string name = block.name.empty() ? std::to_string(block.serial) : "'" + block.name + "'";
  if (block.kind == DeviceMemory::Kind::pinned) return "pinned buffer " + name + place;
  return "buffer " + name + (several ? " of device " + std::to_string(block.device) : "") + place;
}

}  // namespace

DeviceMemory::DeviceMemory(uint64_t capacity) : capacity_(capacity) {
  for (uint64_t bytes = 1ull << 40; bytes >= 2 * capacity && base_ == 0; bytes /= 2) {
    void* map = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) continue;
    base_ = reinterpret_cast<uint64_t>(map);
    reserved_ = bytes;
    madvise(map, bytes, MADV_DONTDUMP);
  }
  if (base_ == 0) throw std::bad_alloc();
  next_ = base_;
}

DeviceMemory::~DeviceMemory() { munmap(pointer(base_), reserved_); }

// First fit after the last allocation, around the end once. 0: the range is full.
uint64_t DeviceMemory::place(uint64_t span) {
  for (int round = 0; round < 2; ++round) {
    uint64_t at = next_;
    for (auto block = blocks_.lower_bound(at); at + span <= end(); ++block) {
      if (block == blocks_.end() || block->first >= at + span) {
        next_ = at + span;
        return at;
      }
      at = round_up(block->first + block->second.bytes, kPage) + kPage;
    }
    next_ = base_;
  }
  return 0;
}

std::optional<uint64_t> DeviceMemory::allocate(uint64_t bytes, Kind kind, int device) {
  if (kind == Kind::device && !fits(bytes, device)) return {};
  const auto address = reserve(bytes, device, false);
  if (!address) return {};
  blocks_.at(*address).kind = kind;
  if (commit(*address)) return address;
  blocks_.erase(*address);
  return {};
}

bool DeviceMemory::fits(uint64_t bytes, int device) const {
  return bytes <= capacity_ && used(device) + round_up(bytes, kAlignment) <= capacity_;
}

std::optional<uint64_t> DeviceMemory::reserve(uint64_t bytes, int device, bool of_graph) {
  if (bytes > reserved_ / 2) return {};
  const uint64_t pages = round_up(bytes, kPage);
  const uint64_t span = place(pages + 2 * kPage);
  if (span == 0) return {};
  const uint64_t address = span + kPage + pages - round_up(bytes, kAlignment);
  several_ |= device != 0;
  blocks_[address] = {.address = address,
                      .bytes = bytes,
                      .kind = Kind::device,
                      .serial = ++serial_,
                      .device = device,
                      .live = false,
                      .of_graph = of_graph};
  return address;
}

bool DeviceMemory::commit(uint64_t address) {
  Block& block = blocks_.at(address);
  if (block.kind == Kind::device && !fits(block.bytes, block.device)) return false;
  const uint64_t first = address / kPage * kPage, pages = round_up(block.bytes, kPage);
  if (mprotect(pointer(first), pages, PROT_READ | PROT_WRITE) != 0) return false;
  memset(pointer(first), 0xff, pages);
  if (block.kind == Kind::device) used_.at(static_cast<size_t>(block.device)) += round_up(block.bytes, kAlignment);
  block.live = true;
  return true;
}

void DeviceMemory::forget(uint64_t address) {
  Block* block = starting_at(address);
  if (block == nullptr) return;
  block->of_graph = false;
  if (!block->live) blocks_.erase(address);
}

DeviceMemory::Block* DeviceMemory::starting_at(uint64_t address) {
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? nullptr : &found->second;
}

bool DeviceMemory::holds_device_memory() const {
  return std::any_of(used_.begin(), used_.end(), [](uint64_t bytes) { return bytes != 0; });
}

void DeviceMemory::name(uint64_t address, std::string name) {
  if (const auto found = blocks_.find(address); found != blocks_.end()) found->second.name = std::move(name);
}

bool DeviceMemory::release(uint64_t address, Kind kind) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != kind || !found->second.live) return false;
  Block& block = found->second;
  unmap(block);
  block.live = false;
  if (block.of_graph) return true;
  if (freed_.size() == kRememberedFrees) freed_.erase(freed_.begin());
  freed_[address] = block;
  blocks_.erase(found);
  return true;
}

// A new mapping in one step gives the pages back and leaves no moment in which another thread could map there.
void DeviceMemory::unmap(const Block& block) {
  const uint64_t first = block.address / kPage * kPage, last = round_up(block.address + block.bytes, kPage);
  mmap(pointer(first), last - first, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (block.kind == Kind::device) used_.at(static_cast<size_t>(block.device)) -= round_up(block.bytes, kAlignment);
}

const DeviceMemory::Block* DeviceMemory::find(uint64_t address, uint64_t bytes) const {
  const Block* block = find_reserved(address, bytes);
  return block != nullptr && block->live ? block : nullptr;
}

const DeviceMemory::Block* DeviceMemory::find_reserved(uint64_t address, uint64_t bytes) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  const uint64_t offset = address - block.address;
  return offset <= block.bytes && bytes <= block.bytes - offset && (offset < block.bytes || bytes == 0) ? &block
                                                                                                        : nullptr;
}

std::string DeviceMemory::describe(uint64_t address) const {
  if (address < kPage) return "a null pointer";
  if (!contains(address)) return "outside all device memory";
  const auto offset_text = [&](const Block& block) {
    return std::to_string(address - block.address) + " of " + text(block, several_);
  };
  const auto holder = [&](const std::map<uint64_t, Block>& blocks) -> const Block* {
    auto after = blocks.upper_bound(address);
    if (after == blocks.begin()) return nullptr;
    const Block& block = std::prev(after)->second;
    return address - block.address < block.bytes ? &block : nullptr;
  };
  if (const Block* block = holder(blocks_))
    return "at byte " + offset_text(*block) + (block->live ? "" : ", which has no memory at this time");
  if (const Block* block = holder(freed_)) return "at byte " + offset_text(*block) + ", which was freed";
  const auto after = blocks_.upper_bound(address);
  const Block* below = after == blocks_.begin() ? nullptr : &std::prev(after)->second;
  const Block* above = after == blocks_.end() ? nullptr : &after->second;
  const uint64_t beyond = below != nullptr ? address - (below->address + below->bytes) : ~0ull;
  const uint64_t before = above != nullptr ? above->address - address : ~0ull;
  if (below == nullptr && above == nullptr) return "in unused device memory";
  if (beyond <= before) return std::to_string(beyond) + " bytes beyond the end of " + text(*below, several_);
  return std::to_string(before) + " bytes before " + text(*above, several_);
}

}  // namespace nodewright::cpu
