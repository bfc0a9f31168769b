#include "models/plan/stage_plans.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "runtime/error.h"

namespace nodewright {
namespace {

// Copies what a stage leaves into the state of the next one.
class HandOver {
 public:
  HandOver(GraphBuilder& g, const DecodeState& from, const StagePart& to, size_t stage)
      : g_(g), from_(from), to_(to.state), weights_(to.model->weights()), stage_(stage) {}

  // What the host has said of the step.
  void inputs() const {
    const NamedRange &from = from_.inputs_range, &to = to_.inputs_range;
    copy("inputs", View<std::byte>{reinterpret_cast<std::byte*>(to.address), to.bytes},
         View<std::byte>{reinterpret_cast<std::byte*>(from.address), from.bytes});
  }

  // The same residual, in the views and with the weights of the next stage.
  Residual of(const Residual& left) const {
    return std::visit([this](const auto& form) { return Residual(received(form)); }, left);
  }

 private:
  PlainResidual received(const PlainResidual& plain) const { return {x(plain.x)}; }

  GainedResidual received(const GainedResidual& gained) const {
    copy("residual", to_.residual, from_.residual);
    return {copy("gained", to_.gained, gained.gained), copy("squares", to_.squares, gained.squares)};
  }

  DeferredResidual received(const DeferredResidual& deferred) const {
    return {x(deferred.x), copy("projected", to_.projected, deferred.projected), weights_.post_gain_before()};
  }

  View<float> x(View<float> left) const {
    const bool is_mid = from_.mid_residual.count > 0 && left.data == from_.mid_residual.data;
    return is_mid ? copy("mid_residual", to_.mid_residual, left) : copy("residual", to_.residual, left);
  }

  // The beginning of `room`, which now holds what `left` does.
  template <class T>
  View<T> copy(const std::string& name, View<T> room, View<T> left) const {
    if (room.count < left.count)
      throw Error({.doing = "hand over",
                   .object = fmt::format("{} from stage {} to stage {}", name, stage_, stage_ + 1),
                   .detail = fmt::format("{} elements, and there is room for {}", left.count, room.count),
                   .advice = "devices of one kind"});
    const View<T> to = room.subview(0, left.count);
    g_.declare({fmt::format("{}@{}", name, stage_ + 1), to.address(), to.bytes(), "activation"},
               {.live_out = true, .peer = true});
    g_.copy("hand_over." + name, to, left, left.bytes());
    return to;
  }

  GraphBuilder& g_;
  const DecodeState& from_;
  const DecodeState& to_;
  const DecoderWeights& weights_;
  size_t stage_;
};

}  // namespace

std::vector<Plan> stage_plans(std::span<const StagePart> stages, EdgePolicy policy) {
  std::vector<Plan> plans;
  Residual received;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StagePart& stage = stages[i];
    const std::string name = decoder_plan_name(stage.state, DecodePurpose::serve, false);
    GraphBuilder g(
        *stage.device, i == 0 ? name : fmt::format("{}@{}", name, i),
        {{"bucket", std::to_string(stage.state.rows)}, {"stage", fmt::format("{} of {}", i, stages.size())}});
    const Residual left =
        describe_stage(g, *stage.model, *stage.kernels, *stage.cache, stage.state, i == 0 ? nullptr : &received);
    if (i + 1 < stages.size()) {
      const HandOver hand_over(g, stage.state, stages[i + 1], i);
      hand_over.inputs();
      received = hand_over.of(left);
    }
    plans.push_back(std::move(g).finish(policy));
  }
  return plans;
}

}  // namespace nodewright
