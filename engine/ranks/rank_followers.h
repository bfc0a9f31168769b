// Sends the steps of rank 0 to the other ranks' processes, each before it is launched here.
#pragma once

#include "engine/ranks/rank_link.h"
#include "engine/topology/step_followers.h"

namespace nodewright {

class RankFollowers final : public StepFollowers {
 public:
  // `link`: of rank 0; must outlive this.
  explicit RankFollowers(RankLink& link) : link_(link) {}

  void check() const override { link_.check(); }
  void launch(const StepSlots::Launch& launch, std::span<const std::byte> inputs) override;
  void sample(int slot, int32_t choices, std::span<const std::byte> block, const ChoiceInputs* inputs) override;
  void set_counts(int32_t sequence, std::span<const int32_t> counts) override;
  void write_table(int32_t sequence, std::span<const int32_t> pages) override;

 private:
  RankLink& link_;
  FrameWriter frame_{FrameKind::launch};
};

}  // namespace nodewright
