// Scores of prompts: slices of a step's rows after the step, on every rank of a team over its part of the vocabulary,
// which the host adds to one distribution.
#include <algorithm>

#include "engine/device/step_slots.h"

namespace nodewright {

int32_t StepSlots::first_of_vocab() const {
  return static_cast<int32_t>(model_->config().shard.first_of(model_->config().vocab));
}
bool StepSlots::has_token(int32_t token) const {
  return token >= first_of_vocab() && token < first_of_vocab() + model_->config().head_rows();
}

void StepSlots::build_slices(const DecoderModel& model, const StepSlotsOptions& options) {
  const ScoreKernels scoring = score_kernels(kernels_, model.config(), slots_[0].scores->limits());
  const View<int32_t> counts = slots_[0].choices->state(1).counts;
  for (Slot& slot : slots_)
    for (int64_t index = 0; index < slot.scores->limits().slices(); ++index) {
      const ScoreState state = slot.scores->slice(index);
      Plan plan = score_plan(device_, model, scoring, state, counts, index, options.policy);
      slot.slices.push_back({state, std::make_unique<PlanRun>(std::move(plan), options.mode, compute_)});
    }
}

size_t StepSlots::slices_of(const Slot& slot) const {
  if (slot.scored.empty()) return 0;
  const auto rows = static_cast<size_t>(slot.scores->limits().slice_rows);
  return (slot.scored.size() + rows - 1) / rows;
}

void StepSlots::launch_slices(int index, std::span<const ScoredRow> scored) {
  Slot& slot = slot_at(index);
  slot.scored.assign(scored.begin(), scored.end());
  for (size_t i = 0; i < slices_of(slot); ++i) {
    const Slice& slice = slot.slices.at(i);
    const ScoreInputs& in = slice.state.host_inputs;
    const auto rows = static_cast<size_t>(slice.state.rows);
    const std::span<const ScoredRow> own = scored.subspan(i * rows, std::min(rows, scored.size() - i * rows));
    slot.scores->place(in, last_graph(index).state);
    in.n_live.data[0] = static_cast<int32_t>(own.size());
    for (size_t row = 0; row < own.size(); ++row) {
      in.rows.data[row] = own[row].step_row;
      in.tokens.data[row] = has_token(own[row].token) ? own[row].token - first_of_vocab() : 0;
      in.logprobs.data[row] = own[row].logprobs;
    }
    slice.run->launch();
  }
}

// On this rank's stream of copies, which waits for the slices.
void StepSlots::return_scores(int index) const {
  const Slot& slot = slots_.at(static_cast<size_t>(index));
  const size_t slices = slices_of(slot);
  if (slices == 0) return;
  const ScoreState& first = slot.slices.front().state;  // the others lie behind it
  read_device_async(copies_, reinterpret_cast<void*>(first.host_outputs_range.address), first.outputs_range.address,
                    slices * first.outputs_range.bytes, "scores");
}

TokenScore StepSlots::score(int slot, size_t index) const {
  const ScoredRow& asked = last().slots_.at(static_cast<size_t>(slot)).scored.at(index);
  std::vector<RankScore> ranks;
  const auto add = [&](const StepSlots& rank) {
    const Slot& of = rank.slots_.at(static_cast<size_t>(slot));
    const auto rows = static_cast<size_t>(of.scores->limits().slice_rows);
    const ScoreState& slice = of.slices.at(index / rows).state;
    const auto row = static_cast<int32_t>(index % rows);
    ranks.push_back(
        {slice.host_outputs, row, slice.host_log_sum.data[row], rank.first_of_vocab(), rank.has_token(asked.token)});
  };
  if (is_team())
    for_each_rank(add);
  else
    add(last());
  return token_score(ranks, asked);
}

}  // namespace nodewright
