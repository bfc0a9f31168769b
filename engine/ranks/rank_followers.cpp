#include "engine/ranks/rank_followers.h"

#include "engine/ranks/step_messages.h"

namespace nodewright {

void RankFollowers::launch(const StepSlots::Launch& launch, std::span<const std::byte> inputs) {
  write_launch(frame_, launch, inputs);
  link_.tell(frame_);
}

void RankFollowers::sample(int slot, int32_t choices, std::span<const std::byte> block, const ChoiceInputs* inputs) {
  write_sample(frame_, slot, choices, block, inputs);
  link_.tell(frame_);
}

void RankFollowers::set_counts(int32_t sequence, std::span<const int32_t> counts) {
  write_counts(frame_, sequence, counts);
  link_.tell(frame_);
}

void RankFollowers::write_table(int32_t sequence, std::span<const int32_t> pages) {
  nodewright::write_table(frame_, sequence, pages);
  link_.tell(frame_);
}

}  // namespace nodewright
