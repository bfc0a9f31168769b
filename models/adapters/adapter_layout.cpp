#include "models/adapters/adapter_layout.h"

#include "models/weights/row_stride.h"
#include "runtime/memory/arena.h"

namespace nodewright {
namespace {

AdapterMatrix matrix_of(const ModelConfig& c, Part part) {
  const MatrixSize size = matrix_size(c, part);
  AdapterMatrix m{.cols = size.cols,
                  .stride = row_stride(size.cols),
                  .outputs = size.outputs,
                  .parts = AdapterLayout::parts_of(c, part),
                  .first = {size.outputs, size.outputs},
                  .alternates = part == Part::gate_up && c.gated};
  if (part == Part::qkv) m.first = {c.query_width(), c.query_width() + c.kv_width()};
  return m;
}

}  // namespace

int64_t AdapterLayout::parts_of(const ModelConfig& config, Part part) {
  return part == Part::qkv ? 3 : part == Part::gate_up && config.gated ? 2 : 1;
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
      m.a = take(m.parts * limits.rank * m.stride, sizeof(WeightElement));
      m.b = take(m.outputs * limits.rank, sizeof(WeightElement));
      m.scales = take(m.parts, sizeof(float));
      matrices_.push_back(m);
    }
}

}  // namespace nodewright
