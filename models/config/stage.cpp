#include "models/config/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/config/model_config.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_stages(const ModelConfig& whole, int64_t count, std::string detail) {
  throw Error({.doing = "cut into stages",
               .object = whole.architecture,
               .detail = std::move(detail),
               .advice = fmt::format("fewer stages than {}, or one device", count),
               .fault = Fault::usage});
}

// Elements of weights, but for vectors.
int64_t elements_of_layer(const ModelConfig& c) {
  const int64_t blocks = std::max<int64_t>(c.experts.count, 1), matrices = c.gated ? 3 : 2;
  return c.hidden * (c.qkv_width() + c.query_width() + blocks * matrices * c.intermediate);
}

// Layers of each stage: one for each, then the next for the stage that has the least. As all are alike, none does
// better.
std::vector<int64_t> layers_of_stages(const ModelConfig& whole, int64_t count) {
  std::vector<int64_t> layers(static_cast<size_t>(count), 1), elements(static_cast<size_t>(count), 0);
  const int64_t of_layer = elements_of_layer(whole), of_vocabulary = whole.vocab * whole.hidden;
  std::ranges::fill(elements, of_layer);
  elements.front() += of_vocabulary + (whole.learned_positions ? whole.max_position * whole.hidden : 0);
  elements.back() += of_vocabulary;
  for (int64_t left = whole.layers - count; left > 0; --left) {
    const auto least = static_cast<size_t>(std::ranges::min_element(elements) - elements.begin());
    ++layers[least];
    elements[least] += of_layer;
  }
  return layers;
}

}  // namespace

ModelConfig stage_of(const ModelConfig& whole, int64_t index, int64_t count) {
  if (count == 1) return whole;
  if (whole.shard.is_part() || whole.stage.is_part())
    refuse_stages(whole, count, "it is a part of a network already, and layers are cut of whole ones");
  if (count > kMostStages)
    refuse_stages(whole, count, fmt::format("{} stages, and there are {} at most", count, kMostStages));
  if (count > whole.layers)
    refuse_stages(whole, count, fmt::format("{} layers are fewer than {} stages", whole.layers, count));
  const std::vector<int64_t> layers = layers_of_stages(whole, count);
  ModelConfig part = whole;
  part.stage = {.index = index, .count = count, .all_layers = whole.layers};
  for (int64_t before = 0; before < index; ++before) part.stage.first_layer += layers[static_cast<size_t>(before)];
  part.layers = layers[static_cast<size_t>(index)];
  return part;
}

}  // namespace nodewright
