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
#include <memory>
#include <span>

#include "engine/device/built_graphs.h"
#include "engine/device/step_clock.h"
#include "engine/device/step_device.h"
#include "engine/device/step_inputs.h"
#include "engine/device/step_launch.h"
#include "engine/device/step_slots_options.h"
#include "engine/device/token_score.h"
#include "engine/topology/step_topology.h"

namespace nodewright {

class StepSlots {
 public:
  // Compiles or loads the kernels, takes the memory, the cache's last, builds a graph for each bucket and slot, in as
  // many threads as help: the largest first. The model must outlive this. Throws Error where memory is short, naming
  // the options that contradict each other, or a kernel does not compile.
  StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options);
  // By rank: several run every step together, each with its part of the model and of the cache. Or by stage: a step
  // goes through their layers one stage after the other (engine/topology). Throws Error besides where they cannot: of
  // ranks modes but explicit, eager rows, another form of prompts, lanes that no bucket can have, and devices that have
  // no access to each other's memory, unless their exchanges are a library's calls; of stages adapters, and devices
  // without such access.
  StepSlots(std::span<const ModelPlace> ranks, const StepSlotsOptions& options);
  ~StepSlots();  // waits for both streams
  StepSlots(const StepSlots&) = delete;
  StepSlots& operator=(const StepSlots&) = delete;

  // Destroys every graph and all memory but the cache, then builds again; of `options`, pages stay as they are. Nothing
  // may be in flight, and what steps left for steps is lost: the next ones get their tokens and all tables from the
  // host. After an Error only destruction is right. Not where other ranks are in other processes, as release(): Error,
  // and nothing changes.
  void rebuild(const DecoderModel& model, const StepSlotsOptions& options);

  // Destroys every graph and gives back all memory, the cache's and what it holds included. Nothing may be in flight.
  // Until restore(), only memory(), built(), stream() and the destructor may be called. Throws Error where the device
  // is lost.
  void release();
  // As it was before release(), with as many pages: of `options`, which are those that it was built with last, pages
  // and memory limit count for nothing. The model may lie elsewhere. Throws Error where memory is short, and is
  // released then, as before.
  void restore(const DecoderModel& model, const StepSlotsOptions& options);
  bool is_released() const { return first().is_released(); }
  // Throws Error (usage) where other ranks are in other processes, which do not follow what is being done.
  void demand_one_process(const char* doing) const;

  // The pinned input block of a bucket. Buckets of one slot share memory.
  const StepInputs& inputs(int slot, int bucket) const { return graph(slot, bucket).state.host_inputs; }

  // Rows of each half of a bucket that is two lanes, whose rows RowOrder orders (models/step/lanes.h); else 0.
  int64_t lane_rows(int bucket) const { return graph(0, bucket).state.lanes.empty() ? 0 : bucket / 2; }
  bool has_bucket(int bucket) const { return first().slot(0).graphs.contains(bucket); }
  // The same as bytes, and those of the second choice of the slot's last launch: the same layout in every process with
  // the same options. Without the biases and masks, which only rows that have some need.
  std::span<std::byte> input_block(int slot, int bucket) const;
  std::span<std::byte> choice_block(int slot) const;

  using Launch = StepLaunch;
  // Submits the copies, the changes of tables and the step, which chooses a token for each sampled row. Does not wait.
  void launch(const Launch& launch);
  // What the second choice of the slot's last launch takes and gives. Only with options.choices.
  const ChoiceInputs& choices(int slot) const { return chosen_slot(slot).last().choice.host_inputs; }
  const ChoiceOutputs& chosen(int slot) const { return chosen_slot(slot).last().choice.host_outputs; }
  // The score of the `index`-th scored row of the slot's last launch, once its tokens are there.
  TokenScore score(int slot, size_t index) const;
  // Submits the second choice, if any of its rows count, and on the other stream the copy of the tokens. Does not wait.
  void sample(int slot, int32_t choices = 0);
  // Writes the first pages of a sequence, for callers that launch the same tables over and over. Blocks; nothing may be
  // in flight.
  void write_table(int32_t sequence, std::span<const int32_t> pages) const;
  // Fills the pages of all layers, of all devices; for measuring over pages that no step has written. Blocks; nothing
  // may be in flight.
  void fill_pages(std::byte value);
  // Replaces the counts from which the penalties of a sequence are computed. Blocks; no step in flight may choose for
  // it.
  void set_counts(int32_t sequence, std::span<const int32_t> counts);
  // Waits for the tokens of the slot's last launch, and for nothing submitted after it. Valid until its next launch.
  // Throws Error when they are not there after `timeout_ms`; 0: waits for ever. And where a follower is missing.
  std::span<const int32_t> wait(int slot, int64_t timeout_ms = 0);
  // [rows, hidden] of the slot's last launch, when its tokens are there; valid as long as they are.
  std::span<const float> hidden(int slot) const;
  // A step did not end in time: nothing here waits for the device any more, although the driver may when it frees
  // memory.
  bool timed_out() const { return timed_out_; }

  // The plan that the graph of a bucket was built of, of the first slot and the first device; null where there is no
  // explicit graph of `bucket` rows. Changes with rebuild() alone.
  const Plan* plan(int bucket) const;

  // The stream that steps run on; for measuring.
  const Stream& stream() const { return first().compute(); }
  // Every later step is recorded there, until null; for measuring. Meanwhile a step of several stages begins when the
  // one before it has ended.
  void time_with(StepClock* clock) { clock_ = clock; }
  // For tests: fills with NaN bytes what no step in flight may look at in a slot that is free.
  void poison(int slot);

  Device& device() const { return first().device(); }
  // The devices that run every step, device() first.
  size_t ranks() const { return topology_->devices().size(); }
  Device& device_of(size_t rank) const { return topology_->devices().at(rank)->device(); }
  const ModelConfig& config_of(size_t rank) const { return topology_->devices().at(rank)->config(); }
  // The slots for options.adapters, those of a rank. They keep address and contents until release(), and are zero after
  // restore().
  AdapterSlots& adapters(size_t rank = 0) const { return *topology_->devices().at(rank)->adapters(); }
  // Work that is launched on that rank's device from now on waits for the event.
  void wait_for(const Event& event, size_t rank = 0) const { topology_->devices().at(rank)->compute().wait(event); }

  KvCache& cache() { return first().cache(); }
  const KvCache& cache() const { return first().cache(); }
  const MemoryUse& memory() const;  // of the device that has the most
  const BuiltGraphs& built() const { return built_; }
  // What of the tuning is not taken, and why, of the first device.
  std::set<std::string> untaken() const { return first().untaken(); }

 private:
  void build(const StepSlotsOptions& options);
  void prepare_graphs(const StepSlotsOptions& options);
  size_t building_threads(const StepSlotsOptions& options) const;
  void wait_for_weights();
  void drop_memory();
  std::span<const int32_t> await_tokens(int slot, int64_t timeout_ms);

  StepDevice& first() const { return topology_->first(); }
  StepDevice& chooser() const { return *topology_->choosers().front(); }
  const StepDevice::Slot& chosen_slot(int slot) const { return chooser().slot(slot); }
  const StepGraph& graph(int slot, int bucket) const { return first().slot(slot).graphs.at(bucket); }

  std::unique_ptr<StepTopology> topology_;
  StepFollowers* followers_ = nullptr;
  BuiltGraphs built_;
  std::vector<uint64_t> released_graphs_;  // bytes of graphs before release(), by device
  int64_t released_pages_ = 0;             // of group 0
  StepClock* clock_ = nullptr;
  bool timed_out_ = false;
};

}  // namespace nodewright
