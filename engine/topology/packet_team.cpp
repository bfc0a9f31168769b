#include "engine/topology/packet_team.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device/step_limits.h"
#include "graph/exec_budget.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// The graphs of all ranks, launched as one.
class TeamStepRun : public StepRun {
 public:
  TeamStepRun(ExchangeMemory& memory, TeamPlan plan, const TeamStream& streams)
      : run_(memory, std::move(plan)), streams_(streams) {}
  void launch() override { run_.launch(streams_); }
  const Plan* plan() override { return &run_.rank(0).plan(); }
  size_t nodes() override { return run_.rank(0).stats().nodes; }

 private:
  TeamGraph run_;
  const TeamStream& streams_;
};

}  // namespace

std::vector<Device*> devices_of(const StepTopology::Devices& devices) {
  std::vector<Device*> all;
  for (const auto& device : devices) all.push_back(&device->device());
  return all;
}

std::vector<const Stream*> streams_of(const StepTopology::Devices& devices) {
  std::vector<const Stream*> all;
  for (const auto& device : devices) all.push_back(&device->compute());
  return all;
}

PacketTeam::PacketTeam(Devices devices)
    : StepTopology(std::move(devices)), team_(devices_of(devices_)), streams_(streams_of(devices_)) {}

// Graphs end before the memory that they write.
PacketTeam::~PacketTeam() {
  for (const auto& device : devices_) device->drop_slots();
}

void PacketTeam::make_shared_memory(const StepSlotsOptions& options) {
  const StepDevice& first = this->first();
  if (const int64_t rows = least_rows_in_lanes(limits_of(options, nullptr));
      options.lanes > 1 && !lane_shape_of(first.model(), options, static_cast<int>(rows)))
    throw Error({.doing = "run steps in two lanes",
                 .object = fmt::format("on {} devices", devices_.size()),
                 .detail = "no step can be two, however large: they are for products of a library, whose sums are "
                           "exchanged in bulk, and for networks that norm no heads of all ranks at once",
                 .advice = "one lane; or fast numerics, and products from fewer rows on",
                 .fault = Fault::usage});
  exchange_.reset();
  int64_t sampled = 0;
  for (const int rows : options.buckets.sizes()) sampled = std::max(sampled, first.state(0, rows).sampled_rows);
  const ExchangeSize size =
      exchange_size(first.config(), options.buckets.largest(), sampled, first.device().properties().sm_count,
                    first.bound(false).lane.empty() ? 1 : kLanes);
  exchange_ = std::make_unique<ExchangeMemory>(team_, "exchange", size);
  for (const auto& device : devices_) device->memory().state += exchange_->bytes();
}

TeamPlan PacketTeam::team_plan(const Step& step, std::span<const KvCache* const> caches, EdgePolicy policy) const {
  const std::string name = decoder_plan_name(first().state(step.slot, step.rows), DecodePurpose::serve, step.adapted);
  return plan_team(*exchange_, name,
                   [&](GraphBuilder& g, TeamRank& rank) {
                     const StepDevice& own = *devices_.at(rank.index());
                     const StepDevice::Bound& bound = own.bound(step.adapted);
                     const auto lane = bound.lane.find(step.bucket);
                     describe_decoder(g, rank, own.model(), bound.whole.at(step.bucket), *caches[rank.index()],
                                      own.state(step.slot, step.rows), step.adapted ? own.adapters() : nullptr,
                                      lane == bound.lane.end() ? nullptr : &lane->second);
                   },
                   policy, {{"bucket", std::to_string(step.rows)}});
}

std::vector<Plan> PacketTeam::plans(const Step& step, std::span<const KvCache* const> caches, EdgePolicy policy) const {
  return team_plan(step, caches, policy).ranks;
}

void PacketTeam::build(const StepSlotsOptions& options, BuiltBucket& built) {
  std::vector<const KvCache*> caches;
  for (const auto& device : devices_) caches.push_back(&device->cache());
  auto& runs = first().slot(built.slot).graphs.at(built.bucket).runs;
  for (const GraphKind kind : {GraphKind::plain, GraphKind::adapted}) {
    const bool adapted = kind == GraphKind::adapted;
    if (adapted && !options.adapters.any()) continue;
    TeamPlan plan = team_plan({built.slot, built.bucket, built.bucket, adapted}, caches, options.policy);
    built.bytes += estimate_exec(plan.ranks[0]).bytes;
    auto run = std::make_unique<TeamStepRun>(*exchange_, std::move(plan), streams_);
    built.nodes += run->nodes();
    runs[kind] = std::move(run);
  }
}

void PacketTeam::give_up() {
  if (exchange_) exchange_->give_up();
}

}  // namespace nodewright
