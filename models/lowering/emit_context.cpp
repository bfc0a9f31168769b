#include "models/lowering/emit_context.h"

#include "kernels_src/product/tiles/tile_shape.h"

namespace nodewright {

View<bf16> StepPlace::input_of(Part part) const {
  if (part == Part::out) return s.attended;
  return part == Part::down ? s.activated : s.normed;
}

const WeightMatrix& StepWeights::matrix(Part part) const {
  switch (part) {
    case Part::qkv:
      return layer->qkv;
    case Part::out:
      return layer->out;
    case Part::gate_up:
      return layer->gate_up;
    case Part::down:
      return layer->down;
    case Part::router:
      return layer->router;
    case Part::embedding:
      return model.embedding();
    default:
      return model.head();
  }
}

const NormWeights& StepWeights::norm(Part part) const {
  switch (part) {
    case Part::attention_norm:
      return layer->attention_norm;
    case Part::feed_forward_norm:
      return layer->feed_forward_norm;
    default:
      return model.final_norm();
  }
}

Weight<WeightElement> StepWeights::post_gain(Part part) const {
  return part == Part::attention_post_norm ? layer->attention_post_norm : layer->feed_forward_post_norm;
}

Weight<WeightElement> StepWeights::gain_after(Part part) const {
  return part == Part::out ? layer->feed_forward_norm.gain : next_gain;
}

ResidualIn residual_in(const Residual& residual, const NormWeights& norm, float eps, View<float> x_next) {
  ResidualIn in{.shift = norm.shift, .eps = eps};
  if (const auto* gained = std::get_if<GainedResidual>(&residual)) {
    in.gained = gained->gained;
    in.squares = gained->squares;
    return in;
  }
  in.gain = norm.gain;
  if (const auto* deferred = std::get_if<DeferredResidual>(&residual)) {
    in.x = deferred->x;
    in.projected = deferred->projected;
    in.post_gain = deferred->post_gain;
    in.x_next = x_next;
  } else {
    in.x = std::get<PlainResidual>(residual).x;
  }
  return in;
}

Residual not_gained(const Residual& residual, const StepPlace& step) {
  return std::holds_alternative<GainedResidual>(residual) ? PlainResidual{step.s.residual} : residual;
}

View<float> other_residual(const Residual& residual, const DecodeState& s) {
  const auto* deferred = std::get_if<DeferredResidual>(&residual);
  return deferred != nullptr && deferred->x == s.residual ? s.mid_residual : s.residual;
}

void settle_residual(Residual& residual, View<float> x) {
  if (std::holds_alternative<DeferredResidual>(residual)) residual = PlainResidual{x};
}

ResidualOut leave_gained(Residual& residual, const DecodeState& s, Weight<WeightElement> gain, uint64_t parts) {
  const GainedResidual left{s.gained, s.squares.subview(0, parts * count_of(TileShape::padded_rows(s.rows)))};
  residual = left;
  return {gain, left.gained, left.squares};
}

AdapterIn adapter_in(const RowAdapters& adapters, const DecodeState& s, Part part) {
  const AdapterLayout& layout = adapters.slots->layout();
  return {.h = s.shrunk[place_of(part)],
          .b = adapters.slots->b(layout.of(adapters.layer, part)),
          .ids = s.inputs.adapters,
          .slot_elements = static_cast<int64_t>(layout.slot_bytes() / sizeof(WeightElement))};
}

}  // namespace nodewright
