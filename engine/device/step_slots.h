// The device's half of the pipeline: two slots with inputs, outputs and graphs of their own over one cache, a stream
// for steps and one for the copies of their tokens. Decides nothing: PipelineState says what is in which slot.
//
//   write_row(slots.inputs(0, 8), ...);        free to write when the slot is
//   slots.launch({.slot = 0, .bucket = 8, .live = 5, .sampled = 5});
//   slots.sample(0);                           or with rows that are chosen again: write_choice(slots.choices(0), ...)
//   slots.wait(0);                             [5] tokens
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/device/prefill_form.h"
#include "engine/device/step_clock.h"
#include "engine/device/step_inputs.h"
#include "engine/device/table_updates.h"
#include "engine/device/token_score.h"
#include "engine/schedule/bucket_set.h"
#include "engine/schedule/pipeline.h"
#include "graph/plan_run.h"
#include "graph/team/team_graph.h"
#include "models/plan/choice_graph.h"
#include "models/plan/decoder_graph.h"
#include "models/plan/score_graph.h"
#include "models/plan/stage_plans.h"
#include "runtime/collectives/collectives.h"
#include "runtime/event.h"

namespace nodewright {

class StepFollowers;

// A graph of the start, and what it cost.
struct BuiltBucket {
  int slot = 0;
  int bucket = 0;            // rows; 0: the plan of eager_rows
  size_t nodes = 0;          // 0 when eager; with adapters those of both graphs
  uint64_t bytes = 0;        // of device memory, as estimate_exec() says; 0 when eager
  double ms = 0;             // of the thread that built it
  int built = 0, total = 0;  // graphs so far, with this one, and in the end
};

// What a start took to build everything. Wall time, of all threads together.
struct BuiltGraphs {
  std::vector<BuiltBucket> graphs;           // the largest bucket first, its slots in their order
  size_t products = 0;                       // of a library, whose kernels were loaded first
  double products_ms = 0;                    // that this took
  size_t threads = 1;                        // that built
  double ms = 0;                             // of the steps' plans and graphs
  double choice_ms = 0;                      // of those of second choices; 0 without options.choices
  double waited_ms = 0;                      // after all of it, for weights that were still on their way
  uint64_t free_before = 0, free_after = 0;  // bytes of device memory
};

// Device memory of an engine.
struct MemoryUse {
  uint64_t weights = 0;
  uint64_t state = 0;   // inputs, activations and outputs of all slots
  uint64_t graphs = 0;  // estimated
  uint64_t pages = 0;
  uint64_t adapters = 0;  // their slots
  uint64_t total() const { return weights + state + graphs + pages + adapters; }
};

struct StepSlotsOptions {
  BucketSet buckets{{1}};               // rows of the graphs
  int eager_rows = 0;                   // of a plan that is launched node by node, as bucket 0; 0: none
  int64_t max_context = 0;              // tokens
  int64_t sequences = 1;                // open at once
  int64_t most_sampled = 0;             // rows of a step that choose; 0: one for each sequence
  int64_t pages = 0;                    // of the cache; 0: what the memory limit leaves
  std::optional<int64_t> window_pages;  // of layers with a window beside others; nothing: as many as of the others
  int64_t request_pages = 0;            // that the cache must have at least; 0: for max_context
  uint64_t memory_limit = 0;            // bytes of weights, state, graphs and pages together; 0: none
  Numerics numerics = Numerics::fast;
  bool choices = false;  // rows may be chosen again
  HiddenStates hidden = HiddenStates::none;
  std::shared_ptr<const Tuning> tuning;  // of this device and model, or none
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  // Told of every graph when it is there, by the thread that built it, under a lock; may be empty.
  std::function<void(const BuiltBucket&)> built;

  // Rows from which on steps are library products (models/plan/step_shape.h); 0: never.
  int64_t products_from = kProductsFromRows;
  PrefillForm prefill = PrefillForm::graph;
  AdapterLimits adapters = {};  // that rows may have: a second graph a bucket
  // 2: of a team, buckets that can be are two halves, whose sums are exchanged while the other half computes
  // (models/plan/lanes.h).
  int64_t lanes = 1;

  // For a model whose other parts are in other processes (engine/ranks). Rank 0 alone: the followers, which receive
  // every step; and the least page count of all ranks. Empty otherwise.
  StepFollowers* followers = nullptr;
  std::function<int64_t(int64_t own)> least_pages = {};
};

// A device with a model on it: of a team, a rank's part of one (models/config/shard.h); of a pipeline, a stage's layers
// (models/config/stage.h). All must outlive what uses it.
struct ModelPlace {
  Device* device;
  KernelCache* kernels;  // of that device
  const DecoderModel* model;
  Collectives* collectives = nullptr;  // of a rank whose exchanges are a library's calls, else null
};

class StepSlots {
 public:
  // Compiles or loads the kernels, takes the memory, the cache's last, builds a graph for each bucket and slot, in as
  // many threads as help: the largest first. The model must outlive this. Throws Error where memory is short, naming
  // the options that contradict each other, or a kernel does not compile.
  StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options);
  // By rank: several run every step together, each with its part of the model and of the cache (step_slots_team.cpp).
  // Throws Error besides where they cannot: modes but explicit, eager rows, another form of prompts, lanes that no
  // bucket can have, and devices that have no access to each other's memory, unless their exchanges are a library's
  // calls. Or by stage: a step goes through their layers one stage after the other (step_slots_stages.cpp); stages
  // refuse adapters, and devices without such access.
  StepSlots(std::span<const ModelPlace> ranks, const StepSlotsOptions& options);
  ~StepSlots();  // waits for both streams
  StepSlots(const StepSlots&) = delete;
  StepSlots& operator=(const StepSlots&) = delete;

  // Destroys every graph and all memory but the cache, then builds again; of `options`, pages stay as they are. Nothing
  // may be in flight, and what steps left for steps is lost: the next ones are told their tokens and all tables. After
  // an Error only destruction is right. Not where other ranks are in other processes, as release(): Error, and nothing
  // changes.
  void rebuild(const DecoderModel& model, const StepSlotsOptions& options);

  // Destroys every graph and gives back all memory, the cache's and what it holds included. Nothing may be in flight.
  // Until restore(), only memory(), built(), stream() and the destructor may be called. Throws Error where the device
  // is lost.
  void release();
  // As it was before release(), with as many pages: of `options`, which are those that it was built with last, pages
  // and memory limit count for nothing. The model may lie elsewhere. Throws Error where memory is short, and is
  // released then, as before.
  void restore(const DecoderModel& model, const StepSlotsOptions& options);
  bool is_released() const { return cache_ == nullptr; }
  // Throws Error (usage) where other ranks are in other processes, which do not follow what is being done.
  void demand_one_process(const char* doing) const;

  // The pinned input block of a bucket. Buckets of one slot share memory.
  const StepInputs& inputs(int slot, int bucket) const { return graph(slot, bucket).state.host_inputs; }

  // Rows of each half of a bucket that is two lanes, whose rows RowOrder orders (models/plan/lanes.h); else 0.
  int64_t lane_rows(int bucket) const { return graph(0, bucket).state.lanes.empty() ? 0 : bucket / 2; }
  bool has_bucket(int bucket) const { return slots_[0].graphs.contains(bucket); }
  // The same as bytes, and those of the second choice of the slot's last launch: the same layout in every process with
  // the same options. Without the biases and masks, which only rows that have some need.
  std::span<std::byte> input_block(int slot, int bucket) const;
  std::span<std::byte> choice_block(int slot) const;

  struct Launch {
    int slot = 0;
    int bucket = 0;                           // one of the buckets, or 0 with eager_rows
    int32_t live = 0;                         // rows that are written
    int32_t sampled = 0;                      // of those, the first rows: their next token is chosen
    std::span<const PageCopy> copies;         // run before the step, in this order
    std::span<const TablePages> tables = {};  // of sequences whose pages have changed since the last launch
    bool prompt = false;                      // it has prompt tokens
    bool chooses_again = true;                // sample() may be told so: logits are kept
    bool adapted = false;                     // rows have adapters; else the inputs' say nothing
    int32_t hidden = 0;                       // rows, the first, whose hidden states come back with the tokens
    std::span<const ScoredRow> scored = {};   // told with the tokens; only with options.choices
  };
  // Submits the copies, the changes of tables and the step, which chooses a token for each sampled row. Does not wait.
  void launch(const Launch& launch);
  // What the second choice of the slot's last launch takes and gives. Only with options.choices.
  const ChoiceInputs& choices(int slot) const { return last().last_graph(slot).choice.host_inputs; }
  const ChoiceOutputs& chosen(int slot) const { return last().last_graph(slot).choice.host_outputs; }
  // The score of the `index`-th scored row of the slot's last launch, once its tokens are there.
  TokenScore score(int slot, size_t index) const;
  // Submits the second choice, if any of its rows count, and on the other stream the copy of the tokens. Does not wait.
  void sample(int slot, int32_t choices = 0);
  // The first pages of a sequence, for who launches the same tables over and over. Blocks; nothing may be in flight.
  void write_table(int32_t sequence, std::span<const int32_t> pages) const;
  // Fills the pages of all layers, of all devices; for measuring over pages that no step has written. Blocks; nothing
  // may be in flight.
  void fill_pages(std::byte value);
  // Replaces what the penalties of a sequence count. Blocks; no step in flight may choose for it.
  void set_counts(int32_t sequence, std::span<const int32_t> counts);
  // Waits for the tokens of the slot's last launch, and for nothing submitted after it. Valid until its next launch.
  // Throws Error when they are not there after `timeout_ms`; 0: waits for ever. And where a follower is missing.
  std::span<const int32_t> wait(int slot, int64_t timeout_ms = 0);
  // [rows, hidden] of the slot's last launch, when its tokens are there; valid as long as they are.
  std::span<const float> hidden(int slot) const;
  // A step did not end in time: nothing here waits for the device any more, but to free its memory the driver may.
  bool timed_out() const { return timed_out_; }

  // The plan that the graph of a bucket was built of, of the first slot and the first device; null where there is no
  // explicit graph of `bucket` rows. Changes with rebuild() alone.
  const Plan* plan(int bucket) const;

  // The stream that steps run on; for measuring.
  const Stream& stream() const { return compute_; }
  // Every later step is recorded there, until null; for measuring. Meanwhile a step of several stages begins when the
  // one before it has ended.
  void time_with(StepClock* clock) { clock_ = clock; }
  // For tests: fills with NaN bytes what no step in flight may look at in a slot that is free.
  void poison(int slot);

  Device& device() const { return device_; }
  // Those that run every step, this one first.
  size_t ranks() const { return 1 + others_.size(); }
  Device& device_of(size_t rank) const { return at_rank(rank).device_; }
  const ModelConfig& config_of(size_t rank) const { return at_rank(rank).model_->config(); }
  // The slots for options.adapters, those of a rank. They keep address and contents until release(), and are zero after
  // restore().
  AdapterSlots& adapters(size_t rank = 0) const { return *at_rank(rank).adapters_; }
  // What is launched on that rank's device from now on waits for the event.
  void wait_for(const Event& event, size_t rank = 0) const { at_rank(rank).compute_.wait(event); }

  KvCache& cache() { return *cache_; }
  const KvCache& cache() const { return *cache_; }
  const MemoryUse& memory() const;  // of one device: of stages, the one that has the most
  const BuiltGraphs& built() const { return built_; }

 private:
  struct Graph {
    DecodeState state;
    ChoiceState choice;
    std::unique_ptr<PlanRun> run, choice_run;  // the latter only with options.choices
    std::unique_ptr<TeamGraph> team_run;       // instead of run, of the first rank of a team
    std::unique_ptr<TeamGraph> adapted_team_run;
    std::unique_ptr<PromptRun> prompt_run;  // of steps with prompt tokens; empty: as the others
    std::unique_ptr<PlanRun> adapted_run;   // of rows with adapters; only with options.adapters, as
    std::unique_ptr<PromptRun> adapted_prompt_run;
  };
  struct Slice {
    ScoreState state;
    std::unique_ptr<PlanRun> run;
  };
  struct Slot {
    std::unique_ptr<DecodeSlot> memory;
    std::unique_ptr<ChoiceSlot> choices;  // may be null
    std::unique_ptr<ScoreSlot> scores;    // null without choices
    std::unique_ptr<TableUpdates> tables;
    Event sampled, copied;          // sampled: the tokens are there; of an earlier stage, what it hands over
    std::map<int, Graph> graphs;    // by bucket; 0: eager
    std::vector<Slice> slices;      // of scored rows, in order
    std::vector<ScoredRow> scored;  // rows of the last launch
    int bucket = 0;                 // of the last launch
    int32_t tokens = 0;             // that it chooses
    uint64_t hidden = 0;            // elements of hidden states that come back
  };

  using BoundKernels = std::map<int, DecoderKernels>;  // by bucket; 0: eager
  // Bound for all rows and, in a bucket that is two lanes, for each half.
  struct Bound {
    BoundKernels whole, lane;
  };

  // Another rank or stage than the first: as that one, without graphs and cache.
  StepSlots(const ModelPlace& place, const StepSlotsOptions& options, const StepSlots& first);
  StepSlots(const ModelPlace& place, const StepSlotsOptions& options, std::span<const ModelPlace> others);

  // Calls f(rank) for all ranks or stages, this one first.
  template <class F>
  void for_each_rank(const F& f) {
    f(*this);
    for (const auto& other : others_) f(*other);
  }
  const StepSlots& at_rank(size_t rank) const { return rank == 0 ? *this : *others_.at(rank - 1); }
  template <class F>
  void for_each_rank(const F& f) const {
    f(*this);
    for (const auto& other : others_) f(std::as_const(*other));
  }
  bool is_team() const { return is_part_ && !others_.empty(); }
  bool sends_packets() const { return is_team() && collectives_ == nullptr; }
  bool is_staged() const { return !is_part_ && !others_.empty(); }
  // Where tokens are chosen and come back from: the last stage.
  StepSlots& last() { return is_staged() ? *others_.back() : *this; }
  const StepSlots& last() const { return is_staged() ? *others_.back() : *this; }
  bool has_choices(const StepSlotsOptions& options) const {
    return options.choices && model_->config().stage.is_last();
  }
  std::unique_ptr<DecodeSlot> memory_of_slot(const DecoderModel& model, const DecodeLimits& limits, int slot) const;
  std::unique_ptr<ChoiceSlot> choices_of_slot(const DecoderModel& model, const DecodeLimits& limits, int slot) const;
  std::span<const int32_t> await_tokens(int slot, int64_t timeout_ms);
  void make_team();
  void make_exchange(const StepSlotsOptions& options);
  TeamPlan team_plan(int slot, int bucket, int rows, std::span<const KvCache* const> caches, EdgePolicy policy,
                     bool adapted) const;
  void build_step(const StepSlotsOptions& options, BuiltBucket& built);
  void build_team_step(const StepSlotsOptions& options, BuiltBucket& built);
  std::vector<Plan> plans_of_stages(int slot, int bucket, int rows, std::span<const KvCache* const> caches,
                                    EdgePolicy policy) const;
  void build_stages(const StepSlotsOptions& options, BuiltBucket& built);
  std::unique_ptr<PlanRun> new_run(const StepSlotsOptions& options, Plan plan, Graph& graph, BuiltBucket& built);
  std::vector<Plan> plans_over(std::span<const KvCache* const> caches, int bucket, int rows, EdgePolicy policy) const;
  bool reads_chosen(const Launch& launch) const;
  void launch_stages(const Launch& launch);
  void launch_graph(const Launch& launch);
  void launch_ranks(const Launch& launch);
  void give_up_exchanges();
  void return_tokens(int slot);
  void build_choices(const StepSlotsOptions& options);
  void submit_changes(const Launch& launch);

  Slot& slot_at(int slot) { return slots_.at(static_cast<size_t>(slot)); }
  const Graph& graph(int slot, int bucket) const { return slots_.at(static_cast<size_t>(slot)).graphs.at(bucket); }
  const Graph& last_graph(int slot) const { return graph(slot, slots_.at(static_cast<size_t>(slot)).bucket); }
  void begin(const StepSlotsOptions& options);
  void wait_for_weights();
  void forget_memory();
  void make_slots(const DecoderModel& model, const StepSlotsOptions& options);
  void make_adapters(const DecoderModel& model, const StepSlotsOptions& options);
  static RunMode mode_of_bucket(const StepSlotsOptions& options, int bucket) {
    return bucket == 0 ? RunMode::eager : options.mode;
  }
  void make_cache(const DecoderModel& model, const StepSlotsOptions& options, int64_t pages);
  void bind_kernels(const DecoderModel& model, const StepSlotsOptions& options);
  void prepare_graphs(const StepSlotsOptions& options);
  Plan step_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy) const;
  int64_t pages_of(const ModelConfig& config, const StepSlotsOptions& options) const;
  size_t building_threads(const StepSlotsOptions& options) const;
  void build(const StepSlotsOptions& options);
  Plan adapted_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy) const;
  void build_adapted(const StepSlotsOptions& options, int bucket, Graph& graph, BuiltBucket& built);
  void build_slices(const DecoderModel& model, const StepSlotsOptions& options);
  void launch_slices(int slot, std::span<const ScoredRow> scored);
  void return_scores(int slot) const;
  size_t slices_of(const Slot& slot) const;
  int32_t first_of_vocab() const;
  bool has_token(int32_t token) const;

  Device& device_;
  KernelCache& kernels_;
  const DecoderModel* model_;
  bool is_part_;                            // the model
  Collectives* collectives_;                // null: ranks, if any, exchange by packets
  std::unique_ptr<KvCache> cache_;          // null while released
  std::unique_ptr<AdapterSlots> adapters_;  // null while released, and without options.adapters
  Bound bound_adapted_;                     // as bound_, of rows with adapters
  Bound bound_;                             // stay while released, and so the library's choices for products
  MemoryUse memory_;
  MemoryUse released_;          // memory_ as it was before release()
  int64_t released_pages_ = 0;  // of group 0
  BuiltGraphs built_;
  // The other ranks of a team or stages of a pipeline, in the first of them; empty elsewhere.
  std::vector<std::unique_ptr<StepSlots>> others_;
  StepFollowers* followers_ = nullptr;
  std::unique_ptr<Team> team_;  // of stages, for the access to each other's memory alone
  std::unique_ptr<ExchangeMemory> exchange_;
  std::unique_ptr<TeamStream> streams_;
  const StepSlots* first_ = nullptr;  // of another rank or stage, the first one
  int sampled_slot_ = -1;             // of stages: that tokens were chosen in last; -1: in none

  uint64_t page_bytes_;
  int64_t hidden_ = 0;  // elements of a hidden state
  std::vector<int64_t> group_of_layer_;
  StepClock* clock_ = nullptr;
  bool timed_out_ = false;
  std::vector<Slot> slots_;  // [kSlots]
  Stream compute_, copies_;  // destroyed first
};

}  // namespace nodewright
