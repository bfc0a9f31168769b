#include "engine/device/step_slots.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "engine/device/page_budget.h"
#include "engine/device/step_followers.h"
#include "engine/device/step_limits.h"
#include "graph/run/stopwatch.h"
#include "models/plan/lanes.h"
#include "runtime/error.h"

namespace nodewright {

StepSlots::StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options)
    : StepSlots({&device, &kernels, &model}, options, std::span<const ModelPlace>()) {}

StepSlots::StepSlots(const ModelPlace& place, const StepSlotsOptions& options, std::span<const ModelPlace> others)
    : device_(*place.device),
      kernels_(*place.kernels),
      model_(place.model),
      is_part_(place.model->config().shard.is_part()),
      collectives_(place.collectives),
      page_bytes_(KvCache::page_bytes(place.model->config())),
      compute_(device_, "steps"),
      copies_(device_, "tokens") {
  followers_ = options.followers;
  begin(options);
  for (const ModelPlace& other : others)
    others_.push_back(std::unique_ptr<StepSlots>(new StepSlots(other, options, *this)));
  if (sends_packets() || is_staged()) make_team();
  if (sends_packets()) make_exchange(options);
  for_each_rank([&](StepSlots& rank) { rank.make_adapters(*rank.model_, options); });
  prepare_graphs(options);
  int64_t pages = 0;
  for_each_rank([&](StepSlots& rank) {
    const int64_t own = rank.pages_of(rank.model_->config(), options);
    pages = pages == 0 ? own : std::min(pages, own);
  });
  if (options.least_pages) pages = options.least_pages(pages);
  for_each_rank([&](StepSlots& rank) { rank.make_cache(*rank.model_, options, pages); });
  build(options);
  wait_for_weights();
}

void StepSlots::demand_one_process(const char* doing) const {
  if (followers_ == nullptr && (collectives_ == nullptr || collectives_->ranks() == ranks())) return;
  throw Error({.doing = doing,
               .detail = "other processes run the same graphs, and do not follow",
               .advice = "a start of all ranks",
               .fault = Fault::usage});
}

// What needs no other rank, before anything is built.
void StepSlots::begin(const StepSlotsOptions& options) {
  const ModelConfig& config = model_->config();
  group_of_layer_.clear();
  for (int64_t layer = 0; layer < config.layers; ++layer) group_of_layer_.push_back(config.page_group(layer));
  bind_kernels(*model_, options);
  make_slots(*model_, options);
}

void StepSlots::wait_for_weights() {
  Stopwatch watch;
  for_each_rank([](const StepSlots& rank) { rank.model_->wait(); });
  built_.waited_ms = watch.lap_ms();
}

void StepSlots::rebuild(const DecoderModel& model, const StepSlotsOptions& options) {
  demand_one_process("rebuild graphs");
  model_ = &model;
  sampled_slot_ = -1;
  for_each_rank([](StepSlots& rank) { rank.slots_.clear(); });
  for_each_rank([&](StepSlots& rank) { rank.begin(options); });
  if (sends_packets()) make_exchange(options);
  prepare_graphs(options);
  for_each_rank([&](const StepSlots& rank) { check_within(options.memory_limit, rank.memory_); });
  build(options);
  wait_for_weights();
}

void StepSlots::make_slots(const DecoderModel& model, const StepSlotsOptions& options) {
  const DecodeLimits limits = limits_of(options, collectives_);
  for (int i = 0; i < kSlots; ++i) {
    const std::string name = "slot" + std::to_string(i);
    slots_.push_back({.memory = memory_of_slot(model, limits, i),
                      .choices = has_choices(options) ? choices_of_slot(model, limits, i) : nullptr,
                      .scores = nullptr,
                      .tables = nullptr,
                      .sampled = Event(device_, name + ".sampled"),
                      .copied = Event(device_, name + ".copied"),
                      .graphs = {}});
    Slot& slot = slots_.back();
    slot.tables = std::make_unique<TableUpdates>(device_, kernels_, slot.memory->state(1), compute_);
    if (!has_choices(options)) continue;
    slot.scores = i == 0 ? std::make_unique<ScoreSlot>(device_, model.config(),
                                                       score_limits_of(device_, model, options), *slot.memory)
                         : std::make_unique<ScoreSlot>(*slots_[0].scores, *slot.memory);
  }
  hidden_ = model.config().hidden;
  memory_.weights = model.weights().bytes();
  memory_.state = 0;
  for (const Slot& slot : slots_)
    memory_.state +=
        slot.memory->bytes() + (slot.choices ? slot.choices->bytes() : 0) + (slot.scores ? slot.scores->bytes() : 0);
}

void StepSlots::bind_kernels(const DecoderModel& model, const StepSlotsOptions& options) {
  std::vector<KernelRequest> requests;
  const DecodeLimits limits = limits_of(options, collectives_);
  const auto add = [&](const StepShape& shape) {
    std::ranges::move(decoder_kernel_requests(model.config(), shape, device_.properties()),
                      std::back_inserter(requests));
  };
  std::map<int, std::optional<StepShape>> lanes;
  for (const auto& [bucket, rows] : plans_of(options)) {
    const StepShape shape = shape_of(model, options, rows, collectives_);
    const auto& lane = lanes[bucket] = lane_shape_of(model, options, bucket);
    for (const StepShape* const each : {&shape, lane ? &*lane : nullptr}) {
      if (each == nullptr) continue;
      add(*each);
      if (limits.adapters.any()) add(with_adapters(*each, limits));
    }
  }
  if (has_choices(options))
    std::ranges::move(
        score_kernel_requests(model.config(), score_limits_of(device_, model, options), device_.properties()),
        std::back_inserter(requests));
  if (has_choices(options))
    for (const auto& [bucket, rows] : plans_of(options))
      for (KernelRequest& request : choice_kernel_requests(
               std::min<int64_t>(rows, limits_of(options, collectives_).sampled()), device_.properties()))
        requests.push_back(std::move(request));
  requests.push_back(TableUpdates::kernel_request());
  kernels_.prepare(requests);
  bound_ = {};
  bound_adapted_ = {};
  const auto bind = [&](int bucket, const StepShape& shape, BoundKernels Bound::*part) {
    (bound_.*part).emplace(bucket, decoder_kernels(kernels_, model.config(), shape));
    if (limits.adapters.any())
      (bound_adapted_.*part).emplace(bucket, decoder_kernels(kernels_, model.config(), with_adapters(shape, limits)));
  };
  for (const auto& [bucket, rows] : plans_of(options)) {
    bind(bucket, shape_of(model, options, rows, collectives_), &Bound::whole);
    if (lanes[bucket]) bind(bucket, *lanes[bucket], &Bound::lane);
  }
}

int64_t StepSlots::pages_of(const ModelConfig& config, const StepSlotsOptions& options) const {
  const auto bytes_of = [&](int64_t group) {
    return static_cast<uint64_t>(config.layers_of_group(group)) * page_bytes_;
  };
  const uint64_t page = bytes_of(0) + (options.window_pages ? 0 : bytes_of(1));
  return pages_within({.wanted = options.pages,
                       .page_bytes = page,
                       .max_context = options.request_pages > 0
                                          ? std::min(options.max_context, options.request_pages * kPageTokens)
                                          : options.max_context,
                       .limit = options.memory_limit,
                       .free = device_.free_bytes(),
                       .use = memory_,
                       .window_bytes = static_cast<uint64_t>(options.window_pages.value_or(0)) * bytes_of(1)});
}

// What is in flight reads memory that is about to go.
StepSlots::~StepSlots() {
  if (timed_out_) return;
  for_each_rank([](const StepSlots& rank) {
    for (const Stream* stream : {&rank.compute_, &rank.copies_}) {
      try {
        stream->synchronize();
      } catch (const Error&) {  // the device is lost, and nothing runs on it
      }
    }
  });
}

std::span<std::byte> StepSlots::input_block(int slot, int bucket) const {
  const NamedRange& range = graph(slot, bucket).state.host_inputs_range;
  return {reinterpret_cast<std::byte*>(range.address), range.bytes};
}

std::span<std::byte> StepSlots::choice_block(int slot) const {
  const NamedRange& range = last().last_graph(slot).choice.host_inputs_range;
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
  for_each_rank([&](StepSlots& rank) {
    Slot& slot = rank.slot_at(launch.slot);
    slot.bucket = launch.bucket;
    slot.tokens = launch.sampled;
    slot.hidden = static_cast<uint64_t>(launch.hidden * hidden_);
  });
  if (is_staged()) return launch_stages(launch);
  for_each_rank([&](StepSlots& rank) { rank.submit_changes(launch); });
  if (clock_ != nullptr) clock_->begin(compute_);
  launch_graph(launch);
  for_each_rank([&](StepSlots& rank) { rank.launch_slices(launch.slot, launch.scored); });
  if (clock_ != nullptr) clock_->end(compute_);
}

void StepSlots::launch_graph(const Launch& launch) {
  const Graph& graph = slot_at(launch.slot).graphs.at(launch.bucket);
  const auto& prompt_run = launch.adapted ? graph.adapted_prompt_run : graph.prompt_run;
  if (graph.team_run)
    (launch.adapted ? graph.adapted_team_run : graph.team_run)->launch(*streams_);
  else if (collectives_ != nullptr)
    launch_ranks(launch);
  else if (launch.prompt && prompt_run)
    prompt_run->launch();
  else
    (launch.adapted ? graph.adapted_run : graph.run)->launch();
}

// What a rank is told before a step, of its pages and tables.
void StepSlots::submit_changes(const Launch& launch) {
  for (const PageCopy& copy : launch.copies)
    for (size_t layer = 0; layer < group_of_layer_.size(); ++layer) {
      if (group_of_layer_[layer] != copy.group) continue;
      const CUdeviceptr pages = cache_->layer(static_cast<int64_t>(layer)).address();
      copy_device_async(compute_, pages + static_cast<uint64_t>(copy.to) * page_bytes_,
                        pages + static_cast<uint64_t>(copy.from) * page_bytes_, page_bytes_, "kv");
    }
  slot_at(launch.slot).tables->submit(launch.tables);
}

void StepSlots::sample(int index, int32_t choices) {
  StepSlots& chooser = last();
  const Stream& copies = chooser.copies_;
  Slot& slot = chooser.slot_at(index);
  const Graph& graph = chooser.last_graph(index);
  if (followers_ != nullptr)
    followers_->sample(index, choices, choices > 0 ? choice_block(index) : std::span<std::byte>(),
                       choices > 0 ? &this->choices(index) : nullptr);
  if (choices > 0) {
    graph.choice.host_inputs.n_live.data[0] = choices;
    graph.choice_run->launch();
    // Every rank chooses the same; what the host says may change when all have read it.
    if (is_team())
      for (const auto& other : others_) {
        other->graph(index, slot.bucket).choice_run->launch();
        other->slot_at(index).sampled.record(other->compute_);
        copies.wait(other->slot_at(index).sampled);
      }
  }
  if (is_staged() && slot.tokens > 0) return_tokens(index);
  // An event of its own, recorded now: what is submitted to the stream of steps later is not waited for.
  slot.sampled.record(chooser.compute_);
  copies.wait(slot.sampled);
  read_device_async(copies, graph.state.host_tokens.data, graph.state.tokens.address(),
                    static_cast<uint64_t>(slot.tokens) * sizeof(int32_t), "tokens");
  if (choices > 0)
    read_device_async(copies, graph.choice.host_outputs.tokens.data, graph.choice.outputs_range.address,
                      graph.choice.outputs_range.bytes, "choices");
  chooser.return_scores(index);
  if (is_team() && !slot.scored.empty())
    for (const auto& other : others_) {
      Slot& own = other->slot_at(index);
      own.sampled.record(other->compute_);
      other->copies_.wait(own.sampled);
      other->return_scores(index);
      own.copied.record(other->copies_);
      copies.wait(own.copied);
    }
  if (slot.hidden > 0)
    read_device_async(copies, graph.state.host_hidden.data, graph.state.hidden.address(), slot.hidden * sizeof(float),
                      "hidden");
  slot.copied.record(copies);
}

std::span<const float> StepSlots::hidden(int slot) const {
  return {last().last_graph(slot).state.host_hidden.data, slots_.at(static_cast<size_t>(slot)).hidden};
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
  Slot& slot = last().slot_at(index);
  if (timeout_ms == 0) slot.copied.synchronize();
  const auto start = Clock::now();
  while (timeout_ms > 0 && !slot.copied.done()) {
    const auto waited = Clock::now() - start;
    timed_out_ = waited >= std::chrono::milliseconds(timeout_ms);
    if (timed_out_) give_up_exchanges();
    if (timed_out_ && is_staged())
      for (const auto& other : others_) other->timed_out_ = true;
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
  return {slot.graphs.at(slot.bucket).state.host_tokens.data, static_cast<size_t>(slot.tokens)};
}

const MemoryUse& StepSlots::memory() const {
  const MemoryUse* most = &memory_;
  if (is_staged())
    for (const auto& other : others_)
      if (other->memory_.total() > most->total()) most = &other->memory_;
  return *most;
}

const Plan* StepSlots::plan(int bucket) const {
  const auto found = slots_[0].graphs.find(bucket);
  if (found == slots_[0].graphs.end()) return nullptr;
  if (found->second.team_run) return &found->second.team_run->rank(0).plan();
  const ExplicitGraph* exec = found->second.run->explicit_graph();
  return exec == nullptr ? nullptr : &exec->plan();
}

void StepSlots::write_table(int32_t sequence, std::span<const int32_t> pages) const {
  if (followers_ != nullptr) followers_->write_table(sequence, pages);
  slots_[0].memory->write_table(sequence, 0, pages);
  for (const auto& other : others_) other->write_table(sequence, pages);
}

void StepSlots::set_counts(int32_t sequence, std::span<const int32_t> counts) {
  if (followers_ != nullptr) followers_->set_counts(sequence, counts);
  if (is_staged()) return last().set_counts(sequence, counts);
  const ChoiceState& choice = slots_[0].graphs.begin()->second.choice;
  const auto first = static_cast<uint64_t>(sequence * choice.counts_stride);
  write_view(device_, choice.counts.subview(first, counts.size()), counts, "counts");
  for (const auto& other : others_) other->set_counts(sequence, counts);
}

void StepSlots::fill_pages(std::byte value) {
  for_each_rank([&](StepSlots& rank) {
    const DeviceBuffer& pages = rank.cache_->buffer();
    fill_device(rank.device_, pages.address(), value, pages.bytes(), pages.name());
  });
}

void StepSlots::poison(int slot) {
  slot_at(slot).memory->poison();
  if (slot_at(slot).choices) slot_at(slot).choices->poison();
  if (slot_at(slot).scores) slot_at(slot).scores->poison();
  for (const auto& other : others_) other->poison(slot);
}

}  // namespace nodewright
