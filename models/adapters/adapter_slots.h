// The device memory of adapters: slots at fixed addresses, which graphs know. An adapter comes into one by a copy.
#pragma once

#include <cstdint>

#include "models/adapters/adapter_image.h"
#include "models/adapters/adapter_layout.h"
#include "models/weights/row_stride.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

class AdapterSlots {
 public:
  // All slots are zero: adapters that change nothing. Throws Error where memory is short.
  AdapterSlots(Device& device, const ModelConfig& config, const AdapterLimits& limits);

  // Submits the copy of an image, whose part for `rank` has the same layout, and which must live until the stream has
  // done it. No launch in flight may read the slot; those that will must wait for the stream.
  void upload(const Stream& stream, int64_t slot, const AdapterImage& image, size_t rank = 0);

  const AdapterLayout& layout() const { return layout_; }
  uint64_t bytes() const { return buffer_.bytes(); }
  NamedRange range() const { return {buffer_.name(), buffer_.address(), buffer_.bytes(), "weight"}; }

  // A matrix in slot 0; slot i's lies i * slot_bytes() further. Each view reaches to its place in the last slot.
  Weight<WeightElement> a(const AdapterMatrix& matrix) const;
  Weight<WeightElement> b(const AdapterMatrix& matrix) const;
  Weight<float> scales(const AdapterMatrix& matrix) const;

 private:
  uint64_t last_slot_bytes() const { return layout_.bytes() - layout_.slot_bytes(); }

  Device& device_;
  AdapterLayout layout_;
  DeviceBuffer buffer_;
};

}  // namespace nodewright
