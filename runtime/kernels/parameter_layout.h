// Where a kernel's parameters lie in its parameter block, as every CUDA compiler lays them out: one after the other,
// each at the next multiple of its alignment. Knows no driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nodewright {

struct KernelParameter {
  uint32_t offset = 0;  // bytes from the start of the block
  uint32_t bytes = 0;
  constexpr uint32_t end() const { return offset + bytes; }
  bool operator==(const KernelParameter&) const = default;
};

// The layout of parameters of the types T.
template <class... T>
constexpr std::array<KernelParameter, sizeof...(T)> parameter_layout() {
  std::array<KernelParameter, sizeof...(T)> layout{};
  [[maybe_unused]] size_t next = 0;
  [[maybe_unused]] uint32_t end = 0;
  (
      [&] {
        constexpr uint32_t align = alignof(T);
        layout[next] = {(end + align - 1) / align * align, sizeof(T)};
        end = layout[next++].end();
      }(),
      ...);
  return layout;
}

}  // namespace nodewright
