// The buffers of a device that exist. A holder of an address asks cheaply whether any buffer is gone since, and
// only then whether that is the buffer of its address.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace nodewright {

struct LiveBuffer {
  uint64_t address = 0, bytes = 0;
  uint64_t serial = 0;  // no other buffer of the device ever gets the same

  bool holds(uint64_t at) const { return at - address < bytes; }
};

// May be used by several threads.
class LiveBuffers {
 public:
  void add(uint64_t address, uint64_t bytes, std::string_view name);
  void remove(uint64_t address);

  // How many were removed so far: while that stays, every buffer is still there.
  uint64_t removed() const { return removed_.load(std::memory_order_acquire); }
  // The buffer that holds `address`; serial 0 when none does.
  LiveBuffer at(uint64_t address) const;
  // The name of the buffer that holds `address`; empty where none does.
  std::string name_at(uint64_t address) const;

 private:
  struct Entry {
    uint64_t bytes = 0, serial = 0;
    std::string name;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;  // by address
  uint64_t serials_ = 0;
  std::atomic<uint64_t> removed_ = 0;
};

}  // namespace nodewright
