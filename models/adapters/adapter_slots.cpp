#include "models/adapters/adapter_slots.h"

#include "runtime/calls/cpu_driver_api.h"

namespace nodewright {

AdapterSlots::AdapterSlots(Device& device, const ModelConfig& config, const AdapterLimits& limits)
    : device_(device), layout_(config, limits), buffer_(device, "adapters", layout_.bytes()) {
  fill_device(device, buffer_.address(), std::byte{0}, buffer_.bytes(), buffer_.name());
}

void AdapterSlots::upload(const Stream& stream, int64_t slot, const AdapterImage& image, size_t rank) {
  const uint64_t to = buffer_.address() + static_cast<uint64_t>(slot) * layout_.slot_bytes();
  const std::span<const std::byte> bytes = image.bytes(rank);
  // A CPU driver that overwrites what has been copied leaves the source alone only where the copy blocks.
  if (device_.driver().is_cpu() && device_.driver().cpu_options().poison)
    write_device(device_, to, bytes, buffer_.name());
  else
    write_device_async(stream, to, bytes.data(), bytes.size(), buffer_.name());
}

Weight<WeightElement> AdapterSlots::a(const AdapterMatrix& m) const {
  const auto rows = static_cast<uint64_t>(m.parts * layout_.limits().rank);
  return weight_of<WeightElement>(buffer_).subview(
      m.a / sizeof(WeightElement), last_slot_bytes() / sizeof(WeightElement) + rows * static_cast<uint64_t>(m.stride));
}

Weight<WeightElement> AdapterSlots::b(const AdapterMatrix& m) const {
  const auto elements = static_cast<uint64_t>(m.outputs * layout_.limits().rank);
  return weight_of<WeightElement>(buffer_).subview(m.b / sizeof(WeightElement),
                                                   last_slot_bytes() / sizeof(WeightElement) + elements);
}

Weight<float> AdapterSlots::scales(const AdapterMatrix& m) const {
  return weight_of<float>(buffer_).subview(m.scales / sizeof(float),
                                           last_slot_bytes() / sizeof(float) + static_cast<uint64_t>(m.parts));
}

}  // namespace nodewright
