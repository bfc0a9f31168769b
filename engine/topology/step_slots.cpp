#include "engine/topology/step_slots.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "engine/device/page_budget.h"
#include "engine/topology/step_followers.h"
#include "graph/timing/stopwatch.h"
#include "models/step/lanes.h"
#include "runtime/error.h"

namespace nodewright {

StepSlots::StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options)
    : StepSlots(std::array{ModelPlace{&device, &kernels, &model}}, options) {}

StepSlots::StepSlots(std::span<const ModelPlace> ranks, const StepSlotsOptions& options)
    : topology_(make_topology(ranks, options)), followers_(options.followers) {
  topology_->make_shared_memory(options);
  for (const auto& device : topology_->devices()) device->make_adapters(options);
  prepare_graphs(options);
  int64_t pages = 0;
  for (const auto& device : topology_->devices()) {
    const int64_t own = device->pages_within_limits(options);
    pages = pages == 0 ? own : std::min(pages, own);
  }
  if (options.least_pages) pages = options.least_pages(pages);
  for (const auto& device : topology_->devices()) device->make_cache(options, pages);
  build(options);
  wait_for_weights();
}

// What is in flight reads memory that is about to go.
StepSlots::~StepSlots() {
  if (timed_out_) return;
  for (const auto& device : topology_->devices())
    for (const Stream* stream : {&device->compute(), &device->copies()}) {
      try {
        stream->synchronize();
      } catch (const Error&) {  // the device is lost, and nothing runs on it
      }
    }
}

void StepSlots::demand_one_process(const char* doing) const {
  const Collectives* collectives = first().collectives();
  if (followers_ == nullptr && (collectives == nullptr || collectives->ranks() == ranks())) return;
  throw Error({.doing = doing,
               .detail = "other processes run the same graphs, and do not follow",
               .advice = "a start of all ranks",
               .fault = Fault::usage});
}

void StepSlots::wait_for_weights() {
  Stopwatch watch;
  for (const auto& device : topology_->devices()) device->model().wait();
  built_.waited_ms = watch.lap_ms();
}

void StepSlots::rebuild(const DecoderModel& model, const StepSlotsOptions& options) {
  demand_one_process("rebuild graphs");
  first().place_model(model);
  topology_->forget_tokens();
  for (const auto& device : topology_->devices()) device->drop_slots();
  for (const auto& device : topology_->devices()) device->begin(options);
  topology_->make_shared_memory(options);
  prepare_graphs(options);
  for (const auto& device : topology_->devices()) check_within(options.memory_limit, device->memory());
  build(options);
  wait_for_weights();
}

void StepSlots::release() {
  if (is_released()) return;
  demand_one_process("give back memory");
  released_graphs_.clear();
  for (const auto& device : topology_->devices()) {
    device->compute().synchronize();
    device->copies().synchronize();
    released_graphs_.push_back(device->memory().graphs);
  }
  released_pages_ = cache().pages();
  drop_memory();
}

void StepSlots::drop_memory() {
  for (const auto& device : topology_->devices()) device->drop_slots();
  topology_->drop_shared_memory();
  for (const auto& device : topology_->devices()) device->drop_memory();
}

void StepSlots::restore(const DecoderModel& model, const StepSlotsOptions& options) {
  if (!is_released()) return;
  try {
    built_ = {};
    first().place_model(model);
    topology_->forget_tokens();
    for (const auto& device : topology_->devices()) device->make_slots(options);
    topology_->make_shared_memory(options);
    for (size_t i = 0; i < ranks(); ++i) {
      StepDevice& device = *topology_->devices()[i];
      device.make_adapters(options);
      device.memory().graphs = released_graphs_[i];
      device.make_cache(options, released_pages_);
    }
    build(options);
    wait_for_weights();
  } catch (...) {
    drop_memory();
    throw;
  }
}

std::span<std::byte> StepSlots::input_block(int slot, int bucket) const {
  const NamedRange& range = graph(slot, bucket).state.host_inputs_range;
  return {reinterpret_cast<std::byte*>(range.address), range.bytes};
}

std::span<std::byte> StepSlots::choice_block(int slot) const {
  const NamedRange& range = chosen_slot(slot).last().choice.host_inputs_range;
  return {reinterpret_cast<std::byte*>(range.address), range.bytes};
}

void StepSlots::launch(const Launch& launch) {
  const StepInputs& in = inputs(launch.slot, launch.bucket);
  in.n_live.data[0] = launch.live;
  in.n_sampled.data[0] = launch.sampled;
  in.keeps_logits.data[0] = launch.chooses_again ? 1 : 0;
  write_lanes(in, launch.live, launch.sampled, lane_rows(launch.bucket));
  if (followers_ != nullptr) {
    followers_->check();
    followers_->launch(launch, input_block(launch.slot, launch.bucket));
  }
  for (const auto& device : topology_->devices()) device->begin_launch(launch);
  try {
    topology_->launch(launch, clock_);
  } catch (const Error&) {
    if (followers_ != nullptr) followers_->check();  // a missing one is the reason
    throw;
  }
}

void StepSlots::sample(int index, int32_t choices) {
  const Stream& copies = chooser().copies();
  StepDevice::Slot& slot = chooser().slot(index);
  const StepGraph& graph = slot.last();
  const auto others = topology_->choosers().subspan(1);
  if (followers_ != nullptr)
    followers_->sample(index, choices, choices > 0 ? choice_block(index) : std::span<std::byte>(),
                       choices > 0 ? &this->choices(index) : nullptr);
  if (choices > 0) {
    graph.choice.host_inputs.n_live.data[0] = choices;
    graph.run(GraphKind::choice).launch();
    // All choose the same; what the host says may change when all have read it.
    for (const auto& other : others) {
      other->slot(index).last().run(GraphKind::choice).launch();
      other->slot(index).sampled.record(other->compute());
      copies.wait(other->slot(index).sampled);
    }
  }
  if (slot.tokens > 0) topology_->hand_back_tokens(index);
  // An event of its own, recorded now: what is submitted to the stream of steps later is not waited for.
  slot.sampled.record(chooser().compute());
  copies.wait(slot.sampled);
  read_device_async(copies, graph.state.host_tokens.data, graph.state.tokens.address(),
                    static_cast<uint64_t>(slot.tokens) * sizeof(int32_t), "tokens");
  if (choices > 0)
    read_device_async(copies, graph.choice.host_outputs.tokens.data, graph.choice.outputs_range.address,
                      graph.choice.outputs_range.bytes, "choices");
  chooser().return_scores(index);
  if (!slot.scored.empty())
    for (const auto& other : others) {
      StepDevice::Slot& own = other->slot(index);
      own.sampled.record(other->compute());
      other->copies().wait(own.sampled);
      other->return_scores(index);
      own.copied.record(other->copies());
      copies.wait(own.copied);
    }
  if (slot.hidden > 0)
    read_device_async(copies, graph.state.host_hidden.data, graph.state.hidden.address(), slot.hidden * sizeof(float),
                      "hidden");
  slot.copied.record(copies);
}

std::span<const float> StepSlots::hidden(int slot) const {
  return {chosen_slot(slot).last().state.host_hidden.data, chosen_slot(slot).hidden};
}

TokenScore StepSlots::score(int slot, size_t index) const {
  std::vector<RankScore> ranks;
  for (const auto& device : topology_->choosers()) ranks.push_back(device->score(slot, index));
  return token_score(ranks, chosen_slot(slot).scored.at(index));
}

std::span<const int32_t> StepSlots::wait(int slot, int64_t timeout_ms) {
  if (followers_ == nullptr) return await_tokens(slot, timeout_ms);
  try {
    const std::span<const int32_t> tokens = await_tokens(slot, timeout_ms);
    followers_->check();  // without a rank the step has ended, and means nothing
    return tokens;
  } catch (const Error&) {
    followers_->check();
    throw;
  }
}

std::span<const int32_t> StepSlots::await_tokens(int index, int64_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const StepDevice::Slot& slot = chosen_slot(index);
  if (timeout_ms == 0) slot.copied.synchronize();
  const auto start = Clock::now();
  while (timeout_ms > 0 && !slot.copied.done()) {
    const auto waited = Clock::now() - start;
    timed_out_ = waited >= std::chrono::milliseconds(timeout_ms);
    if (timed_out_) topology_->give_up();
    if (timed_out_)
      throw Error({.doing = "wait for the step of bucket",
                   .object = std::to_string(slot.bucket),
                   .detail = "it has not ended after " + std::to_string(timeout_ms) + " ms",
                   .advice = "a longer step timeout; otherwise a kernel does not end, and only the end of the process "
                             "frees the device"});
    // A usual step is over by then; who waits longer need not burn a core.
    if (waited < std::chrono::milliseconds(5))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return {slot.last().state.host_tokens.data, static_cast<size_t>(slot.tokens)};
}

const MemoryUse& StepSlots::memory() const {
  const auto total = [](const auto& device) { return std::as_const(*device).memory().total(); };
  return std::as_const(**std::ranges::max_element(topology_->devices(), {}, total)).memory();
}

const Plan* StepSlots::plan(int bucket) const {
  const auto found = first().slot(0).graphs.find(bucket);
  return found == first().slot(0).graphs.end() ? nullptr : found->second.run(GraphKind::plain).plan();
}

void StepSlots::write_table(int32_t sequence, std::span<const int32_t> pages) const {
  if (followers_ != nullptr) followers_->write_table(sequence, pages);
  for (const auto& device : topology_->devices()) device->write_table(sequence, pages);
}

void StepSlots::set_counts(int32_t sequence, std::span<const int32_t> counts) {
  if (followers_ != nullptr) followers_->set_counts(sequence, counts);
  for (const auto& device : topology_->choosers()) device->set_counts(sequence, counts);
}

void StepSlots::fill_pages(std::byte value) {
  for (const auto& device : topology_->devices()) device->fill_pages(value);
}

void StepSlots::poison(int slot) {
  for (const auto& device : topology_->devices()) device->poison(slot);
}

}  // namespace nodewright
