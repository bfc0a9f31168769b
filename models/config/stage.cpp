#include "models/config/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/config/model_config.h"
#include "models/config/part.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_stages(const ModelConfig& whole, int64_t count, std::string detail) {
  throw Error({.doing = "cut into stages",
               .object = whole.architecture,
               .detail = std::move(detail),
               .advice = fmt::format("fewer stages than {}, or one device", count),
               .fault = Fault::usage});
}

// The first stages over the first layers: of each stage its layers, and all stages' elements, the largest first.
struct Cut {
  std::vector<int64_t> layers, elements;
};
Cut with_stage(Cut cut, int64_t layers, int64_t elements) {
  cut.layers.push_back(layers);
  cut.elements.insert(std::ranges::upper_bound(cut.elements, elements, std::greater<>()), elements);
  return cut;
}

// Layers of each stage: the cut whose largest stage is smallest, among equals the one whose second largest is, and so
// on. Where all are equal, earlier stages have more.
std::vector<int64_t> layers_of_stages(const ModelConfig& whole, int64_t count) {
  const auto at = [](int64_t n) { return static_cast<size_t>(n); };
  std::vector<int64_t> before{0};  // [layers + 1] elements of the layers before
  for (int64_t layer = 0; layer < whole.layers; ++layer)
    before.push_back(before.back() + layer_elements(whole, layer, whole.experts.count));
  const int64_t of_vocabulary = whole.vocab * whole.hidden;
  const int64_t of_first = of_vocabulary + (whole.learned_positions ? whole.max_position * whole.hidden : 0);
  std::vector<Cut> best{Cut{}};  // [layers + 1] cuts into the stages so far; those beyond there are none
  for (int64_t stage = 0; stage < count; ++stage) {
    const int64_t more = (stage == 0 ? of_first : 0) + (stage + 1 == count ? of_vocabulary : 0);
    const int64_t stages_behind = count - stage - 1;
    std::vector<Cut> next(at(whole.layers + 1));
    for (int64_t end = stage + 1; end <= whole.layers - stages_behind; ++end)
      for (int64_t begin = stage == 0 ? 0 : end - 1; begin >= stage; --begin) {
        const int64_t elements = before[at(end)] - before[at(begin)] + more;
        Cut& found = next[at(end)];
        if (!found.layers.empty() && elements > found.elements.front()) break;  // and so are all that begin earlier
        Cut cut = with_stage(best[at(begin)], end - begin, elements);
        if (found.layers.empty() || cut.elements < found.elements) found = std::move(cut);
      }
    best = std::move(next);
  }
  return best.back().layers;
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
