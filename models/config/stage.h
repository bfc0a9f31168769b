// What one stage of a pipeline computes of a network: some of its layers, one after the other. The first stage has the
// embedding besides, the last one the head.
#pragma once

#include <cstdint>

namespace nodewright {

struct ModelConfig;

// A stage's place; of one stage the part is the whole.
struct Stage {
  int64_t index = 0, count = 1;
  int64_t first_layer = 0, all_layers = 0;  // of the whole network; stage_of() says them

  bool is_part() const { return count > 1; }
  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
  bool operator==(const Stage&) const = default;
};

// As many devices as a Team has: they write each other's memory.
inline constexpr int64_t kMostStages = 8;

// `whole` as stage `index` of `count` sees it: layers is its own, what is said of each layer stays that of all. Layers
// are cut so that the stage with the most bytes of weights has as few as can be. Throws Error where there are more
// stages than layers or than kMostStages, or the network is a part already.
ModelConfig stage_of(const ModelConfig& whole, int64_t index, int64_t count);

}  // namespace nodewright
