// Stages of a pipeline: every device has memory, pages, tables and graphs of its own layers, and a stream of its own. A
// step goes through the streams one after the other, held together by events: so the first stage may begin the next
// step while this one is in the last. The first stage takes the host's inputs and hands them on; the last one chooses
// the tokens.
#pragma once

#include "engine/topology/step_topology.h"
#include "graph/team/team.h"

namespace nodewright {

class PipelineStages : public StepTopology {
 public:
  // Throws Error where devices have no access to each other's memory.
  explicit PipelineStages(Devices devices);

  std::span<const std::unique_ptr<StepDevice>> choosers() const override { return std::span(devices_).last(1); }
  std::vector<Plan> plans(const Step& step, std::span<const KvCache* const> caches, EdgePolicy policy) const override;
  void launch(const StepLaunch& launch, StepClock* clock) override;
  void hand_back_tokens(int slot) override;
  void forget_tokens() override { sampled_slot_ = -1; }

 private:
  StepDevice& last() const { return *devices_.back(); }
  bool reads_chosen(const StepLaunch& launch) const;

  Team team_;              // for the access to each other's memory alone
  int sampled_slot_ = -1;  // that tokens were chosen in last; -1: in none
};

}  // namespace nodewright
