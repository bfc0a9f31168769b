// Slots of a team of tensor-parallel ranks: the first has the graphs, which are launched on all, and what the host
// says; every rank has memory, pages, tables and second choices of its own. All ranks choose the same tokens from the
// same logits.
#include <fmt/format.h>

#include <algorithm>

#include "engine/device/step_followers.h"
#include "engine/device/step_limits.h"
#include "engine/device/step_slots.h"
#include "graph/exec_budget.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

const ModelPlace& checked_ranks(std::span<const ModelPlace> ranks, const StepSlotsOptions& options) {
  const auto refuse = [&](const char* detail, const char* advice) {
    throw Error({.doing = "run steps",
                 .object = fmt::format("on {} devices", ranks.size()),
                 .detail = detail,
                 .advice = advice,
                 .fault = Fault::usage});
  };
  if (ranks.empty()) refuse("a step needs one at least", "pass a device");
  if (ranks[0].model->config().stage.is_part()) {
    const auto count = static_cast<int64_t>(ranks.size());
    for (int64_t i = 0; i < count; ++i) {
      const Stage& stage = ranks[static_cast<size_t>(i)].model->config().stage;
      if (stage.index != i || stage.count != count)
        refuse("the models are not the stages of one, in their order", "load each with its Stage");
    }
    if (options.adapters.any()) refuse("rows have no adapters in stages", "one device, or a merged adapter");
    return ranks[0];
  }
  const bool gathers = ranks[0].collectives != nullptr;
  const auto count = static_cast<int64_t>(gathers ? ranks[0].collectives->ranks() : ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto rank =
        static_cast<int64_t>(gathers && ranks[i].collectives != nullptr ? ranks[i].collectives->rank() : i);
    if (ranks[i].model->config().shard != Shard{rank, count} || (ranks[i].collectives != nullptr) != gathers)
      refuse("the models are not the parts of one, in the order of their ranks", "load each with its Shard");
  }
  if (count == 1) return ranks[0];
  if (options.mode != RunMode::explicit_)
    refuse("graphs that exchange are explicit ones", "the mode explicit, or one device");
  if (options.prefill != PrefillForm::graph) refuse("prompts are whole graphs there", "the prefill form graph");
  if (options.eager_rows > 0) refuse("no step is launched node by node there", "buckets for every number of rows");
  if (gathers && options.adapters.any())
    refuse("rows have no adapters where a library's calls exchange", "exchanges by packets, or a merged adapter");
  if (gathers && options.lanes > 1) refuse("steps in two lanes send packets", "exchanges by packets, or one lane");
  return ranks[0];
}

}  // namespace

StepSlots::StepSlots(std::span<const ModelPlace> ranks, const StepSlotsOptions& options)
    : StepSlots(checked_ranks(ranks, options), options, ranks.subspan(1)) {}

StepSlots::StepSlots(const ModelPlace& place, const StepSlotsOptions& options, const StepSlots& first)
    : device_(*place.device),
      kernels_(*place.kernels),
      model_(place.model),
      is_part_(place.model->config().shard.is_part()),
      collectives_(place.collectives),
      first_(&first),
      page_bytes_(KvCache::page_bytes(place.model->config())),
      compute_(device_, "steps"),
      copies_(device_, "tokens") {
  begin(options);
}

std::unique_ptr<DecodeSlot> StepSlots::memory_of_slot(const DecoderModel& model, const DecodeLimits& limits,
                                                      int slot) const {
  if (first_ != nullptr) {
    const DecodeSlot& host = *first_->slots_.at(static_cast<size_t>(slot)).memory;
    return slot == 0 ? DecodeSlot::of_rank(device_, model.config(), limits, host) : slots_[0].memory->another(host);
  }
  return slot == 0 ? std::make_unique<DecodeSlot>(device_, model.config(), limits)
                   : std::make_unique<DecodeSlot>(*slots_[0].memory);
}

std::unique_ptr<ChoiceSlot> StepSlots::choices_of_slot(const DecoderModel& model, const DecodeLimits& limits,
                                                       int slot) const {
  if (first_ != nullptr && is_part_) {
    const ChoiceSlot& host = *first_->slots_.at(static_cast<size_t>(slot)).choices;
    return slot == 0 ? ChoiceSlot::of_rank(device_, model.config(), limits, host) : slots_[0].choices->another(host);
  }
  return slot == 0 ? std::make_unique<ChoiceSlot>(device_, model.config(), limits)
                   : std::make_unique<ChoiceSlot>(*slots_[0].choices);
}

// Ranks that exchange by a library's calls have a graph each, launched one after the other. If one were refused, the
// others would wait for it.
void StepSlots::launch_ranks(const Launch& launch) {
  if (collectives_->given_up() && followers_ != nullptr) followers_->check();
  if (collectives_->given_up())
    throw Error({.doing = "launch a step of",
                 .object = fmt::format("{} ranks", collectives_->ranks()),
                 .detail = "one of them has left, or a step did not end",
                 .advice = "start again"});
  try {
    for_each_rank([&](const StepSlots& rank) { rank.graph(launch.slot, launch.bucket).run->launch(); });
  } catch (...) {
    give_up_exchanges();
    throw;
  }
}

void StepSlots::give_up_exchanges() {
  if (exchange_) exchange_->give_up();
  for_each_rank([](const StepSlots& rank) {
    if (rank.collectives_ != nullptr) rank.collectives_->give_up();
  });
}

void StepSlots::make_team() {
  std::vector<Device*> devices;
  std::vector<const Stream*> streams;
  for_each_rank([&](StepSlots& rank) {
    devices.push_back(&rank.device_);
    streams.push_back(&rank.compute_);
  });
  team_ = std::make_unique<Team>(std::move(devices));
  streams_ = std::make_unique<TeamStream>(std::move(streams));
}

void StepSlots::make_exchange(const StepSlotsOptions& options) {
  if (const int64_t rows = least_rows_in_lanes(limits_of(options, nullptr));
      options.lanes > 1 && !lane_shape_of(*model_, options, static_cast<int>(rows)))
    throw Error({.doing = "run steps in two lanes",
                 .object = fmt::format("on {} devices", ranks()),
                 .detail = "no step can be two, however large: they are for products of a library, whose sums are "
                           "exchanged in bulk, and for networks that norm no heads of all ranks at once",
                 .advice = "one lane; or fast numerics, and products from fewer rows on",
                 .fault = Fault::usage});
  exchange_.reset();
  int64_t sampled = 0;
  for (const int rows : options.buckets.sizes())
    sampled = std::max(sampled, slots_[0].memory->state(rows).sampled_rows);
  const ExchangeSize size = exchange_size(model_->config(), options.buckets.largest(), sampled,
                                          device_.properties().sm_count, bound_.lane.empty() ? 1 : kLanes);
  exchange_ = std::make_unique<ExchangeMemory>(*team_, "exchange", size);
  for_each_rank([&](StepSlots& rank) { rank.memory_.state += exchange_->bytes(); });
}

TeamPlan StepSlots::team_plan(int slot, int bucket, int rows, std::span<const KvCache* const> caches, EdgePolicy policy,
                              bool adapted) const {
  const auto state_of = [&](const StepSlots& rank) {
    return rank.slots_.at(static_cast<size_t>(slot)).memory->state(rows);
  };
  const std::string name = decoder_plan_name(state_of(*this), DecodePurpose::serve, adapted);
  return plan_team(*exchange_, name,
                   [&](GraphBuilder& g, TeamRank& rank) {
                     const StepSlots& own = at_rank(rank.index());
                     const Bound& bound = adapted ? own.bound_adapted_ : own.bound_;
                     const auto lane = bound.lane.find(bucket);
                     describe_decoder(g, rank, *own.model_, bound.whole.at(bucket), *caches[rank.index()],
                                      state_of(own), adapted ? own.adapters_.get() : nullptr,
                                      lane == bound.lane.end() ? nullptr : &lane->second);
                   },
                   policy, {{"bucket", std::to_string(rows)}});
}

void StepSlots::build_team_step(const StepSlotsOptions& options, BuiltBucket& built) {
  std::vector<const KvCache*> caches;
  for_each_rank([&](const StepSlots& rank) { caches.push_back(rank.cache_.get()); });
  Graph& graph = slot_at(built.slot).graphs.at(built.bucket);
  const auto build = [&](bool adapted) {
    TeamPlan plan = team_plan(built.slot, built.bucket, built.bucket, caches, options.policy, adapted);
    built.bytes += estimate_exec(plan.ranks[0]).bytes;
    auto run = std::make_unique<TeamGraph>(*exchange_, std::move(plan));
    built.nodes += run->rank(0).stats().nodes;
    return run;
  };
  graph.team_run = build(false);
  if (options.adapters.any()) graph.adapted_team_run = build(true);
}

}  // namespace nodewright
