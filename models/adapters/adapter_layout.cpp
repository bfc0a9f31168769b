#include "models/adapters/adapter_layout.h"

#include "kernels_src/args.h"
#include "models/weights/row_stride.h"
#include "runtime/memory/arena.h"

namespace nodewright {
namespace {

AdapterMatrix matrix_of(const ModelConfig& c, Part part) {
  AdapterMatrix m{.outputs = AdapterLayout::outputs_of(c, part), .parts = AdapterLayout::parts_of(c, part)};
  switch (part) {
    case Part::qkv:
      m.cols = c.hidden, m.first = {c.query_width(), c.query_width() + c.kv_width()};
      break;
    case Part::gate_up:
      m.cols = c.hidden, m.alternates = c.gated;
      break;
    case Part::out:
      m.cols = c.query_width();
      break;
    default:
      m.cols = c.intermediate;
      break;
  }
  if (m.parts == 1) m.first = {m.outputs, m.outputs};
  m.stride = row_stride(m.cols);
  return m;
}

}  // namespace

int64_t AdapterLayout::parts_of(const ModelConfig& config, Part part) {
  return part == Part::qkv ? 3 : part == Part::gate_up && config.gated ? 2 : 1;
}

int64_t AdapterLayout::outputs_of(const ModelConfig& config, Part part) {
  switch (part) {
    case Part::qkv:
      return config.qkv_width();
    case Part::gate_up:
      return (config.gated ? 2 : 1) * config.intermediate;
    default:
      return config.hidden;
  }
}

AdapterLayout::AdapterLayout(const ModelConfig& config, const AdapterLimits& limits) : limits_(limits) {
  const auto take = [this](int64_t elements, uint64_t element_bytes) {
    const uint64_t at = slot_bytes_;
    const uint64_t bytes = static_cast<uint64_t>(elements) * element_bytes;
    slot_bytes_ += (bytes + kArenaAlignBytes - 1) / kArenaAlignBytes * kArenaAlignBytes;
    return at;
  };
  for (int64_t layer = 0; layer < config.layers; ++layer)
    for (const Part part : kAdaptedParts) {
      if (!adapts(config, layer, part)) {
        matrices_.emplace_back();
        continue;
      }
      AdapterMatrix m = matrix_of(config, part);
      m.a = take(m.parts * limits.rank * m.stride, sizeof(bf16));
      m.b = take(m.outputs * limits.rank, sizeof(bf16));
      m.scales = take(m.parts, sizeof(float));
      matrices_.push_back(m);
    }
}

}  // namespace nodewright
