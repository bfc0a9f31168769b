#include "models/kv_cache.h"

#include "kernels_src/attend.h"

namespace nodewright {

uint64_t KvCache::page_bytes(const ModelConfig& config) {
  const AttendShape shape{.heads = config.heads, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
  return sizeof(bf16) * 2 * static_cast<uint64_t>(config.kv_heads * kPageTokens * shape.padded_head_dim());
}

KvCache::KvCache(Device& device, const ModelConfig& config, int64_t pages)
    : pages_(pages),
      layer_elements_(static_cast<uint64_t>(pages) * page_bytes(config) / sizeof(bf16)),
      buffer_(device, "kv", static_cast<uint64_t>(config.layers) * layer_elements_ * sizeof(bf16)) {}

View<bf16> KvCache::layer(int64_t index) const {
  return view_of<bf16>(buffer_).subview(static_cast<uint64_t>(index) * layer_elements_, layer_elements_);
}

NamedRange KvCache::range(int64_t index) const {
  const View<bf16> view = layer(index);
  return {"kv.l" + std::to_string(index), view.address(), view.bytes(), "kv"};
}

}  // namespace nodewright
