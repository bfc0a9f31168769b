// Device and pinned memory: one reserved range of addresses, every allocation between guard pages, no address used
// twice until the range has been passed through. Not thread-safe: the driver's lock guards it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/calls/cpu_driver_api.h"

namespace nodewright::cpu {

class DeviceMemory {
 public:
  enum class Kind : uint8_t { device, pinned };

  struct Block {
    uint64_t address, bytes;
    Kind kind;
    uint64_t serial;  // counts allocations: names the buffer in reports that nobody has named
    int device;
    std::string name = {};
    bool live = true;          // false: addresses without memory, until commit()
    bool of_graph = false;     // the addresses are a graph's, whether there is memory at them or not
    bool outstanding = false;  // of_graph: a launch has allocated it, and nothing submitted since then frees it
  };

  // `capacity`: bytes of device memory that each device has.
  explicit DeviceMemory(uint64_t capacity);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned, filled with 0xFF: NaN in every float format. Empty: not enough memory.
  std::optional<uint64_t> allocate(uint64_t bytes, Kind kind, int device);
  // Addresses without memory, until commit(). `of_graph`: they stay reserved when the memory is released, until
  // forget(). Empty: no room.
  std::optional<uint64_t> reserve(uint64_t bytes, int device, bool of_graph);
  // False: not enough memory.
  bool commit(uint64_t address);
  // The graph is gone: the addresses go too, at once or with the memory.
  void forget(uint64_t address);
  // Names the buffer that starts there, for reports.
  void name(uint64_t address, std::string name);
  // False: no allocation of this kind starts there. The pages are gone at once.
  bool release(uint64_t address, Kind kind);

  // The live allocation that holds all of [address, address + bytes); null if none does.
  const Block* find(uint64_t address, uint64_t bytes) const;
  // The same among all, with memory or without: what is to be used in the order of a stream or a graph.
  const Block* find_reserved(uint64_t address, uint64_t bytes) const;
  Block* starting_at(uint64_t address);
  // Where an address lies, in words: "in guard page 12 bytes beyond buffer 3 (0x..., 256 bytes)".
  std::string describe(uint64_t address) const;

  bool contains(uint64_t address) const { return address - base_ < reserved_; }
  uint64_t begin() const { return base_; }
  uint64_t end() const { return base_ + reserved_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t used(int device) const { return used_.at(static_cast<size_t>(device)); }  // device memory only
  bool holds_device_memory() const;

 private:
  uint64_t place(uint64_t span);
  void unmap(const Block& block);
  bool fits(uint64_t bytes, int device) const;

  uint64_t base_ = 0, reserved_ = 0, capacity_, next_ = 0, serial_ = 0;
  std::array<uint64_t, kMostCpuDevices> used_{};  // by device
  bool several_ = false;                          // another device than the first has had memory
  std::map<uint64_t, Block> blocks_;              // by address
  std::map<uint64_t, Block> freed_;               // the last ones, for reports
};

}  // namespace nodewright::cpu
