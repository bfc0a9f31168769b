// Tensor-parallel ranks whose exchanges are a library's calls (runtime/libraries), in this process and perhaps in
// others: every rank has a graph of its own, and they are launched one after the other.
#pragma once

#include "engine/topology/step_topology.h"

namespace nodewright {

class CollectiveTeam : public StepTopology {
 public:
  using StepTopology::StepTopology;

  bool is_built_by_one_thread() const override { return true; }  // one thread makes the library's calls
  void give_up() override;

 private:
  // Throws Error where a rank has left, or a step did not end.
  void launch_graphs(const StepLaunch& launch) override;
};

}  // namespace nodewright
