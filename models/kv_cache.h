// The paged key/value cache of all layers. Holds memory only: which sequence owns which page is
// engine/cache/page_pool's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "runtime/memory/memory.h"

namespace nodewright {

// Tokens of a page: in bf16 64 x head_dim 64 x 2 bytes = 8 KiB contiguous a head, and a table of 16 entries at 1024
// tokens.
inline constexpr int64_t kPageTokens = 64;

inline int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

class KvCache {
 public:
  // `pages` pages of kPageTokens tokens, for every layer of the configuration; for those of group 1
  // (ModelConfig::page_group) `window_pages`, if given. The memory is not initialised: no kernel
  // reads a position that was not written. Throws Error with the bytes needed and free.
  KvCache(Device& device, const ModelConfig& config, int64_t pages, std::optional<int64_t> window_pages = {});

  int64_t pages(int64_t group = 0) const { return pages_[static_cast<size_t>(group)]; }
  // [pages of its group, 2, kv_heads, kPageTokens, padded head_dim], as ModelConfig::cache says; an element of the view
  // is two bytes (kernels_src/attention/kv_pages.h).
  View<bf16> layer(int64_t index) const;
  NamedRange range(int64_t index) const;  // "kv.l3": of a stage by the layer's number in the network
  uint64_t bytes() const { return buffer_.bytes(); }
  DeviceBuffer& buffer() { return buffer_; }

  // Bytes of one layer's page, keys and values of every head.
  static uint64_t page_bytes(const ModelConfig& config);

 private:
  std::array<int64_t, 2> pages_;  // of each group
  uint64_t page_elements_;
  int64_t first_layer_;
  std::vector<int64_t> first_page_;  // [layers + 1] of all pages, layer by layer
  DeviceBuffer buffer_;
};

}  // namespace nodewright
