#include "models/step/lanes.h"

#include <algorithm>

namespace nodewright {
namespace {

template <class T>
View<T> half_of(View<T> whole, uint64_t half) {
  return whole.subview(half * (whole.count / 2), whole.count / 2);
}

// `lane`: its number; `half`: of the rows.
StepInputs inputs_of(const StepInputs& whole, size_t lane, uint64_t half) {
  StepInputs in = whole;
  in.n_live = whole.lane_live.count > 0 ? whole.lane_live.subview(lane, 1) : View<int32_t>{};
  in.n_sampled = whole.lane_sampled.count > 0 ? whole.lane_sampled.subview(lane, 1) : View<int32_t>{};
  for (View<int32_t> StepInputs::*const rows : {&StepInputs::tokens, &StepInputs::positions, &StepInputs::sequences,
                                                &StepInputs::top_k, &StepInputs::output_index, &StepInputs::adapters})
    in.*rows = half_of(whole.*rows, half);
  for (View<float> StepInputs::*const rows : {&StepInputs::temperature, &StepInputs::min_p, &StepInputs::top_p})
    in.*rows = half_of(whole.*rows, half);
  in.seed = half_of(whole.seed, half);
  return in;
}

}  // namespace

// All exchanges of lanes are in bulk: others would win little, and without rows be none, where the ranks must wait for
// each other. Norms over the heads of all ranks are such others.
std::optional<StepShape> lane_shape(const ModelConfig& config, const NetworkForm& network, const DecodeLimits& limits,
                                    int64_t rows) {
  if (limits.lanes < 2 || rows % (2 * kRowsOfLane) != 0 || limits.hidden == HiddenStates::full) return std::nullopt;
  if (!config.shard.is_part() || limits.collectives || config.hidden % 8 != 0 || config.norms_heads_of_ranks())
    return std::nullopt;
  const StepShape whole = step_shape(network, limits, rows);
  StepShape lane = step_shape(network, limits, rows / 2);
  const bool splits = whole.with_products() && lane.with_products() && lane.rows > kHeldToRows &&
                      lane.sampled_rows == whole.sampled_rows && limits.sampled() <= lane.rows;
  if (!splits) return std::nullopt;
  lane.is_lane = true;
  return lane;
}

int64_t least_rows_in_lanes(const DecodeLimits& limits) {
  const int64_t least = std::max({limits.sampled(), kHeldToRows + 1, limits.products_from.value_or(kProductsFromRows)});
  return 2 * ((least + kRowsOfLane - 1) / kRowsOfLane * kRowsOfLane);
}

std::vector<DecodeState> halves_of(const DecodeState& whole) {
  std::vector<DecodeState> lanes;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t half = lane == kLate ? 0 : 1;
    DecodeState& s = lanes.emplace_back(whole);
    s.rows = whole.rows / 2;
    s.inputs = inputs_of(whole.inputs, lane, half);
    s.host_inputs = inputs_of(whole.host_inputs, lane, half);
    for (View<float> DecodeState::*const rows : {&DecodeState::residual, &DecodeState::mid_residual, &DecodeState::qkv,
                                                 &DecodeState::q, &DecodeState::projected, &DecodeState::partial})
      s.*rows = half_of(whole.*rows, half);
    for (View<bf16> DecodeState::*const rows :
         {&DecodeState::attended, &DecodeState::activated, &DecodeState::normed, &DecodeState::gate_up})
      s.*rows = half_of(whole.*rows, half);
    for (View<float>& rows : s.shrunk) rows = half_of(rows, half);
    ExpertState& e = s.experts;
    e.logits = half_of(e.logits, half), e.weights = half_of(e.weights, half), e.given = half_of(e.given, half);
    e.chosen = half_of(e.chosen, half), e.pairs = half_of(e.pairs, half);
    s.tokens = whole.tokens.subview(0, whole.tokens.count / 2);  // of rows that choose: the late lane alone
  }
  return lanes;
}

void write_lanes(const StepInputs& in, int64_t live, int64_t sampled, int64_t lane_rows) {
  if (in.lane_live.count == 0) return;
  const int64_t late = lane_rows > 0 ? std::min(live, lane_rows) : live;
  in.lane_live.data[kEarly] = static_cast<int32_t>(live - late);
  in.lane_live.data[kLate] = static_cast<int32_t>(late);
  in.lane_sampled.data[kEarly] = 0;
  in.lane_sampled.data[kLate] = static_cast<int32_t>(sampled);
}

}  // namespace nodewright
