#include "models/kv_cache.h"

namespace nodewright {
namespace {

std::vector<int64_t> first_pages(const ModelConfig& config, const std::array<int64_t, 2>& of_groups) {
  std::vector<int64_t> first{0};
  for (int64_t layer = 0; layer < config.layers; ++layer)
    first.push_back(first.back() + of_groups[static_cast<size_t>(config.page_group(layer))]);
  return first;
}

}  // namespace

uint64_t KvCache::page_bytes(const ModelConfig& config) {
  return static_cast<uint64_t>(2 * config.kv_heads * kPageTokens * padded_head_dim(config.head_dim, config.cache) *
                               element_bytes(config.cache));
}

KvCache::KvCache(Device& device, const ModelConfig& config, int64_t pages, std::optional<int64_t> window_pages)
    : pages_{pages, window_pages.value_or(pages)},
      page_elements_(page_bytes(config) / sizeof(bf16)),
      first_layer_(config.stage.first_layer),
      first_page_(first_pages(config, pages_)),
      buffer_(device, "kv", static_cast<uint64_t>(first_page_.back()) * page_bytes(config)) {}

View<bf16> KvCache::layer(int64_t index) const {
  const auto first = static_cast<uint64_t>(first_page_[static_cast<size_t>(index)]);
  const auto last = static_cast<uint64_t>(first_page_[static_cast<size_t>(index) + 1]);
  return view_of<bf16>(buffer_).subview(first * page_elements_, (last - first) * page_elements_);
}

NamedRange KvCache::range(int64_t index) const {
  const View<bf16> view = layer(index);
  return {"kv.l" + std::to_string(first_layer_ + index), view.address(), view.bytes(), "kv"};
}

}  // namespace nodewright
