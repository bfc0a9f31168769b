// One device's share of the steps: two slots with inputs, outputs and graphs of their own over one cache, a stream for
// steps and one for the copies of their tokens. It knows no other device: a StepTopology has several run one step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/built_graphs.h"
#include "engine/device/step_graph.h"
#include "engine/device/step_launch.h"
#include "engine/device/step_slots_options.h"
#include "engine/device/table_updates.h"
#include "engine/device/token_score.h"
#include "models/plan/score_graph.h"
#include "runtime/event.h"

namespace nodewright {

class StepDevice {
 public:
  // A slice of scored rows.
  struct Slice {
    ScoreState state;
    std::unique_ptr<PlanRun> run;
  };
  struct Slot {
    std::unique_ptr<DecodeSlot> memory;
    std::unique_ptr<ChoiceSlot> choices;  // may be null
    std::unique_ptr<ScoreSlot> scores;    // null without choices
    std::unique_ptr<TableUpdates> tables;
    Event sampled, copied;            // sampled: the tokens are there; of an earlier stage, what it hands over
    std::map<int, StepGraph> graphs;  // by bucket; 0: eager
    std::vector<Slice> slices;        // of scored rows, in order
    std::vector<ScoredRow> scored;    // rows of the last launch
    int bucket = 0;                   // of the last launch
    int32_t tokens = 0;               // that it chooses
    uint64_t hidden = 0;              // elements of hidden states that come back

    const StepGraph& last() const { return graphs.at(bucket); }
  };
  // Kernels by bucket; 0: eager.
  using BoundKernels = std::map<int, DecoderKernels>;
  // Bound for all rows and, in a bucket that is two lanes, for each half.
  struct Bound {
    BoundKernels whole, lane;
  };

  // `first`: the device whose pinned memory this one reads, where the host writes the inputs of all; null: itself.
  StepDevice(const ModelPlace& place, const StepSlotsOptions& options, const StepDevice* first);

  // A start goes through these in turn, on each device; the constructor takes the first step. begin() binds kernels and
  // takes the memory of slots, make_slots() the memory alone.
  void begin(const StepSlotsOptions& options);
  void make_slots(const StepSlotsOptions& options);
  void make_adapters(const StepSlotsOptions& options);
  void make_cache(const StepSlotsOptions& options, int64_t pages);
  void add_graphs(const StepSlotsOptions& options);  // by bucket and slot, without runs
  // The plan's run, as `plain` or `adapted`, with that of prompts where these have a form of their own. Counts in
  // `built` what it takes.
  void add_run(const StepSlotsOptions& options, bool adapted, Plan plan, BuiltBucket& built);
  void build_choices(const StepSlotsOptions& options, size_t threads);
  void build_slices(const StepSlotsOptions& options);

  // Pages that the memory limit leaves, or the device's free memory.
  int64_t pages_within_limits(const StepSlotsOptions& options) const;
  // `cache`: may be another than the device's own.
  Plan step_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy, bool adapted,
                 DecodePurpose purpose = DecodePurpose::serve) const;
  Plan choice_plan(const DecodeState& state, const ChoiceState& choice, EdgePolicy policy) const;
  Plan slice_plan(const Slot& slot, int64_t index, EdgePolicy policy) const;

  void place_model(const DecoderModel& model) { model_ = &model; }
  void drop_slots() { slots_.clear(); }
  void drop_memory();  // the cache's and the adapters'
  bool is_released() const { return cache_ == nullptr; }

  // Notes the launch in its slot.
  void begin_launch(const StepLaunch& launch);
  // Submits the copies and tables of a step.
  void submit_changes(const StepLaunch& launch);
  void launch(const StepLaunch& launch) const;
  void launch_slices(int slot, std::span<const ScoredRow> scored);
  // Submits the copies of scores on the stream of copies, which waits for the slices.
  void return_scores(int slot) const;
  // What this device knows of the `index`-th scored row of the slot's last launch.
  RankScore score(int slot, size_t index) const;

  void write_table(int32_t sequence, std::span<const int32_t> pages) const;
  void set_counts(int32_t sequence, std::span<const int32_t> counts) const;
  void fill_pages(std::byte value) const;
  void poison(int slot);

  Device& device() const { return device_; }
  const DecoderModel& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }
  Collectives* collectives() const { return collectives_; }
  const Stream& compute() const { return compute_; }
  const Stream& copies() const { return copies_; }
  KvCache& cache() const { return *cache_; }
  AdapterSlots* adapters() const { return adapters_.get(); }
  MemoryUse& memory() { return memory_; }
  const MemoryUse& memory() const { return memory_; }
  const Bound& bound(bool adapted) const { return adapted ? bound_adapted_ : bound_; }
  std::set<std::string> untaken() const;  // DecoderKernels::untaken of all
  std::vector<Slot>& slots() { return slots_; }
  const std::vector<Slot>& slots() const { return slots_; }
  Slot& slot(int index) { return slots_.at(static_cast<size_t>(index)); }
  const Slot& slot(int index) const { return slots_.at(static_cast<size_t>(index)); }
  DecodeState state(int slot, int rows) const { return this->slot(slot).memory->state(rows); }
  bool has_choices(const StepSlotsOptions& options) const { return options.choices && config().stage.is_last(); }

 private:
  std::unique_ptr<DecodeSlot> memory_of_slot(const DecodeLimits& limits, int slot) const;
  std::unique_ptr<ChoiceSlot> choices_of_slot(const DecodeLimits& limits, int slot) const;
  void bind_kernels(const StepSlotsOptions& options);
  size_t slices_of(const Slot& slot) const;
  int32_t first_of_vocab() const;
  bool has_token(int32_t token) const;

  Device& device_;
  KernelCache& kernels_;
  const DecoderModel* model_;
  Collectives* collectives_;  // null: other devices, if any, exchange by packets
  const StepDevice* first_;
  std::unique_ptr<KvCache> cache_;          // null while released
  std::unique_ptr<AdapterSlots> adapters_;  // null while released, and without options.adapters
  Bound bound_adapted_;                     // as bound_, of rows with adapters
  Bound bound_;                             // stay while released, and so the library's choices for products
  MemoryUse memory_;
  uint64_t page_bytes_;
  int64_t hidden_ = 0;  // elements of a hidden state
  std::vector<int64_t> group_of_layer_;
  std::vector<Slot> slots_;  // [kSlots]
  Stream compute_, copies_;  // destroyed first
};

}  // namespace nodewright
