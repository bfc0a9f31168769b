// A rank that follows: repeats on its device, step by step, what rank 0 does on its own.
#pragma once

#include <array>
#include <cstdint>

#include "engine/ranks/rank_link.h"
#include "engine/ranks/step_messages.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

class RankFollower {
 public:
  // `link` and `slots`, which are those of this rank with the options of rank 0's, must outlive this.
  RankFollower(RankLink& link, StepSlots& slots) : link_(link), slots_(slots) {}

  // Runs until rank 0 ends in order. Throws Error where rank 0 leaves otherwise, with its reason, or sends a step that
  // cannot be, or where the device fails.
  void run();

 private:
  void follow();
  void launch(const LaunchMessage& message);
  void sample(const SampleMessage& message);
  void set_counts(const CountsMessage& message);
  void write_table(const TableMessage& message);
  void free(int slot);
  void check_slot(FrameKind kind, int32_t slot) const;

  RankLink& link_;
  StepSlots& slots_;
  std::array<bool, kSlots> in_flight_{};
};

}  // namespace nodewright
