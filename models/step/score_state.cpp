#include "models/step/score_state.h"

#include <algorithm>
#include <cstring>

#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/sampling/record_choice.h"
#include "models/step/network_form.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

uint64_t stride_of(int64_t columns) { return static_cast<uint64_t>(row_stride(columns)); }

ScoreInputs lay_out_inputs(Arena& arena, int64_t rows) {
  const auto n = static_cast<uint64_t>(rows);
  ScoreInputs in;
  const auto take = [&]<class T>(View<T>& view, const char* name, uint64_t count) {
    view = arena.take<T>(name, count, "input", 16);
  };
  take(in.n_live, "score.n_live", 1);
  take(in.places, "score.places", 2);
  take(in.rows, "score.rows", n);
  take(in.tokens, "score.tokens", n);
  take(in.logprobs, "score.logprobs", n);
  take(in.indices, "score.indices", n);
  take(in.zeros, "score.zeros", n);
  return in;
}

void lay_out_scratch(Arena& arena, ScoreState& s, const ModelConfig& config, bool on_gpu) {
  const auto n = static_cast<uint64_t>(s.rows);
  s.residual = arena.take<float>("score.residual", n * stride_of(config.hidden));
  if (s.with_products || s.may_hold) s.normed = arena.take<bf16>("score.normed", n * stride_of(config.hidden));
  if (s.may_hold) s.squares = arena.take<float>("score.squares", static_cast<uint64_t>(TileShape::padded_rows(s.rows)));
  if (s.with_products) {
    if (on_gpu) s.workspace = arena.take<uint8_t>("score.workspace", kProductWorkspaceBytes, "workspace");
  }
  s.logits_stride = static_cast<int64_t>(stride_of(config.head_rows()));
  s.logits = arena.take<float>("score.logits", n * stride_of(config.head_rows()));
}

// After those of a choice.
View<float> lay_out_log_sum(Arena& arena, int64_t rows) {
  return arena.take<float>("score.log_sum", static_cast<uint64_t>(rows), "output", 16);
}

// The bytes of a slice, rounded up so that the next begins at an aligned address.
uint64_t aligned(uint64_t bytes) { return (bytes + kArenaAlignBytes - 1) / kArenaAlignBytes * kArenaAlignBytes; }

uint64_t inputs_bytes(int64_t rows) {
  Arena arena = Arena::measuring();
  lay_out_inputs(arena, rows);
  return aligned(arena.used_bytes());
}

uint64_t outputs_bytes(int64_t rows) {
  Arena arena = Arena::measuring();
  lay_out_choice_outputs(arena, rows);
  lay_out_log_sum(arena, rows);
  return aligned(arena.used_bytes());
}

uint64_t scratch_bytes(const ScoreLimits& limits, const ModelConfig& config, bool on_gpu) {
  Arena arena = Arena::measuring();
  ScoreState s;
  s.rows = limits.slice_rows;
  s.with_products = limits.with_products, s.may_hold = limits.may_hold;
  lay_out_scratch(arena, s, config, on_gpu);
  return arena.used_bytes();
}

}  // namespace

ScoreLimits score_limits(const ModelConfig& config, const DecodeLimits& limits, int64_t slice_rows) {
  ScoreLimits score{.step_rows = limits.rows, .slice_rows = std::max<int64_t>(std::min(limits.rows, slice_rows), 2)};
  const int64_t from = limits.products_from.value_or(kProductsFromRows);
  score.with_products = limits.numerics == Numerics::fast && from > 0 && network_form(network_of(config)).products &&
                        score.slice_rows >= std::min(from, kProductsFromRows) && !config.layouts.head.is_quantized();
  score.may_hold = step_shape(network_form(network_of(config)), limits, 1).always_holds(config);
  score.beside_adapters = limits.adapters.any();
  return score;
}

ScoreSlot::ScoreSlot(Device& device, const ModelConfig& config, const ScoreLimits& limits, const DecodeSlot& step)
    : ScoreSlot(device, config, limits, step,
                std::make_shared<DeviceBuffer>(device, "score.scratch",
                                               scratch_bytes(limits, config, !device.driver().is_cpu()))) {
  owns_scratch_ = true;
  // No value of a row past n_live matters, but every byte that is loaded has been written once.
  fill_device(device, scratch_->address(), std::byte{0}, scratch_->bytes(), scratch_->name());
}

ScoreSlot::ScoreSlot(const ScoreSlot& first, const DecodeSlot& step)
    : ScoreSlot(first.device_, first.config_, first.limits_, step, first.scratch_) {}

ScoreSlot::ScoreSlot(Device& device, const ModelConfig& config, const ScoreLimits& limits, const DecodeSlot& step,
                     std::shared_ptr<DeviceBuffer> scratch)
    : device_(device),
      config_(config),
      limits_(limits),
      step_(step),
      scratch_(std::move(scratch)),
      inputs_(device, "score.inputs", static_cast<uint64_t>(limits.slices()) * inputs_bytes(limits.slice_rows)),
      outputs_(device, "score.outputs", static_cast<uint64_t>(limits.slices()) * outputs_bytes(limits.slice_rows)),
      host_inputs_(device, "host.score.inputs", inputs_.bytes()),
      host_outputs_(device, "host.score.outputs", outputs_.bytes()) {
  fill_device(device, outputs_.address(), std::byte{0}, outputs_.bytes(), outputs_.name());
  std::memset(host_inputs_.data(), 0, host_inputs_.bytes());
}

ScoreState ScoreSlot::slice(int64_t index) const {
  ScoreState s;
  s.rows = limits_.slice_rows;
  s.with_products = limits_.with_products, s.may_hold = limits_.may_hold;
  const auto at = static_cast<uint64_t>(index);
  const auto range = [at](const auto& buffer, uint64_t address, uint64_t bytes, const char* kind) {
    return NamedRange{buffer.name(), address + at * bytes, bytes, kind};
  };
  const auto host = [](const PinnedBuffer& buffer) { return reinterpret_cast<uint64_t>(buffer.data()); };
  const uint64_t in_bytes = inputs_bytes(s.rows), out_bytes = outputs_bytes(s.rows);
  s.inputs_range = range(inputs_, inputs_.address(), in_bytes, "input");
  s.host_inputs_range = range(host_inputs_, host(host_inputs_), in_bytes, "input");
  s.outputs_range = range(outputs_, outputs_.address(), out_bytes, "output");
  s.host_outputs_range = range(host_outputs_, host(host_outputs_), out_bytes, "output");
  const auto arena_of = [](const NamedRange& part) { return Arena(part.name, part.address, part.bytes); };
  Arena inputs = arena_of(s.inputs_range), host_inputs = arena_of(s.host_inputs_range),
        outputs = arena_of(s.outputs_range), host_outputs = arena_of(s.host_outputs_range), scratch(*scratch_);
  s.inputs = lay_out_inputs(inputs, s.rows);
  s.host_inputs = lay_out_inputs(host_inputs, s.rows);
  s.outputs = lay_out_choice_outputs(outputs, s.rows);
  s.log_sum = lay_out_log_sum(outputs, s.rows);
  s.host_outputs = lay_out_choice_outputs(host_outputs, s.rows);
  s.host_log_sum = lay_out_log_sum(host_outputs, s.rows);
  lay_out_scratch(scratch, s, config_, !device_.driver().is_cpu());
  s.scratch = scratch.ranges();
  s.activations = view_of<float>(step_.activations());
  s.activations_range = {step_.activations().name(), s.activations.address(), s.activations.bytes(), "activation"};
  return s;
}

void ScoreSlot::place(const ScoreInputs& in, const DecodeState& step) const {
  const auto index_of = [&](const View<float>& view) {
    return static_cast<int64_t>((view.address() - step_.activations().address()) / sizeof(float));
  };
  const bool joins = step.mid_residual.count > 0;  // what the last block adds has not been normed yet
  in.places.data[0] = index_of(joins ? step.mid_residual : step.residual);
  in.places.data[1] = joins ? index_of(step.projected) : -1;
  for (int32_t i = 0; i < static_cast<int32_t>(limits_.slice_rows); ++i) in.indices.data[i] = i, in.zeros.data[i] = 0;
}

uint64_t ScoreSlot::bytes() const {
  return inputs_.bytes() + outputs_.bytes() + (owns_scratch_ ? scratch_->bytes() : 0);
}

void ScoreSlot::poison() {
  fill_device(device_, outputs_.address(), std::byte{0xff}, outputs_.bytes(), outputs_.name());
  std::memset(host_inputs_.data(), 0xff, host_inputs_.bytes());
}

}  // namespace nodewright
