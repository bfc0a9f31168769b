// The processes that repeat what the slots of this one do: each step reaches them before it is done here, so that the
// parts of a model in several processes run the same steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/topology/step_slots.h"

namespace nodewright {

// For the thread that has the slots. All but check() do nothing where a follower is missing.
class StepFollowers {
 public:
  virtual ~StepFollowers() = default;
  // Throws Error where a follower is missing, with its reason: the results of the steps since then are meaningless.
  virtual void check() const = 0;
  // `inputs`: the slot's block, as of StepSlots::input_block().
  virtual void launch(const StepSlots::Launch& launch, std::span<const std::byte> inputs) = 0;
  // With choices: `block` as of StepSlots::choice_block(), and the same as views.
  virtual void sample(int slot, int32_t choices, std::span<const std::byte> block, const ChoiceInputs* inputs) = 0;
  virtual void set_counts(int32_t sequence, std::span<const int32_t> counts) = 0;
  virtual void write_table(int32_t sequence, std::span<const int32_t> pages) = 0;
};

}  // namespace nodewright
