// Scores of prompts: slices of a step's rows after the step, on every rank of a team over its part of the vocabulary,
// which the host adds to one distribution.
#include <algorithm>

#include "engine/device/step_device.h"

namespace nodewright {

int32_t StepDevice::first_of_vocab() const { return static_cast<int32_t>(config().shard.first_of(config().vocab)); }

bool StepDevice::has_token(int32_t token) const {
  return token >= first_of_vocab() && token < first_of_vocab() + config().head_rows();
}

size_t StepDevice::slices_of(const Slot& slot) const {
  if (slot.scored.empty()) return 0;
  const auto rows = static_cast<size_t>(slot.scores->limits().slice_rows);
  return (slot.scored.size() + rows - 1) / rows;
}

void StepDevice::launch_slices(int index, std::span<const ScoredRow> scored) {
  Slot& slot = this->slot(index);
  slot.scored.assign(scored.begin(), scored.end());
  for (size_t i = 0; i < slices_of(slot); ++i) {
    const Slice& slice = slot.slices.at(i);
    const ScoreInputs& in = slice.state.host_inputs;
    const auto rows = static_cast<size_t>(slice.state.rows);
    const std::span<const ScoredRow> own = scored.subspan(i * rows, std::min(rows, scored.size() - i * rows));
    slot.scores->place(in, slot.last().state);
    in.n_live.data[0] = static_cast<int32_t>(own.size());
    for (size_t row = 0; row < own.size(); ++row) {
      in.rows.data[row] = own[row].step_row;
      in.tokens.data[row] = has_token(own[row].token) ? own[row].token - first_of_vocab() : 0;
      in.logprobs.data[row] = own[row].logprobs;
    }
    slice.run->launch();
  }
}

void StepDevice::return_scores(int index) const {
  const Slot& slot = this->slot(index);
  const size_t slices = slices_of(slot);
  if (slices == 0) return;
  const ScoreState& first = slot.slices.front().state;  // the others lie after it
  read_device_async(copies_, reinterpret_cast<void*>(first.host_outputs_range.address), first.outputs_range.address,
                    slices * first.outputs_range.bytes, "scores");
}

RankScore StepDevice::score(int slot_index, size_t index) const {
  const Slot& slot = this->slot(slot_index);
  const auto rows = static_cast<size_t>(slot.scores->limits().slice_rows);
  const ScoreState& slice = slot.slices.at(index / rows).state;
  const auto row = static_cast<int32_t>(index % rows);
  return {slice.host_outputs, row, slice.host_log_sum.data[row], first_of_vocab(),
          has_token(slot.scored.at(index).token)};
}

}  // namespace nodewright
