// Tensor-parallel ranks whose kernels send each other packets (graph/team): the first device has the graphs, which are
// launched on all, and the host's inputs; every rank has memory, pages, tables and second choices of its own, and
// chooses the same tokens from the same logits.
#pragma once

#include "engine/topology/step_topology.h"
#include "graph/team/team_graph.h"

namespace nodewright {

class PacketTeam : public StepTopology {
 public:
  // Throws Error where devices have no access to each other's memory.
  explicit PacketTeam(Devices devices);
  ~PacketTeam() override;

  // The memory of the exchange. Throws Error (usage) where steps are to be two lanes and none can be.
  void make_shared_memory(const StepSlotsOptions& options) override;
  void drop_shared_memory() override { exchange_.reset(); }
  std::vector<Plan> plans(const Step& step, std::span<const KvCache* const> caches, EdgePolicy policy) const override;
  void build(const StepSlotsOptions& options, BuiltBucket& built) override;
  void give_up() override;

 private:
  TeamPlan team_plan(const Step& step, std::span<const KvCache* const> caches, EdgePolicy policy) const;

  Team team_;
  TeamStream streams_;
  std::unique_ptr<ExchangeMemory> exchange_;
};

// The devices of these, and their streams of steps, in their order.
std::vector<Device*> devices_of(const StepTopology::Devices& devices);
std::vector<const Stream*> streams_of(const StepTopology::Devices& devices);

}  // namespace nodewright
