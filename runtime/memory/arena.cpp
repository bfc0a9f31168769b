#include "runtime/memory/arena.h"

#include <utility>

namespace nodewright {

uint64_t Arena::take_bytes(std::string name, uint64_t count, uint64_t element_bytes, std::string kind,
                           uint64_t align_bytes) {
  const uint64_t padding = (align_bytes - (address_ + used_bytes_) % align_bytes) % align_bytes;
  const uint64_t left = bytes_ - used_bytes_;
  if (padding > left || count > (left - padding) / element_bytes)
    throw Error({.doing = "take from arena '" + name_ + "' the piece",
                 .object = name,
                 .detail = "needs " + std::to_string(count) + " x " + std::to_string(element_bytes) + " bytes, " +
                           std::to_string(padding > left ? 0 : left - padding) + " of " + std::to_string(bytes_) +
                           " are left after " + std::to_string(ranges_.size()) + " pieces"});
  const uint64_t address = address_ + used_bytes_ + padding;
  used_bytes_ += padding + count * element_bytes;
  ranges_.push_back({std::move(name), address, count * element_bytes, std::move(kind)});
  return address;
}

}  // namespace nodewright
