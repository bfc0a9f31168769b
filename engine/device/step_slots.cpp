#include "engine/device/step_slots.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <ranges>
#include <string>
#include <thread>

#include "engine/device/page_budget.h"
#include "graph/exec_budget.h"
#include "graph/nodes/library_nodes.h"
#include "graph/run/stopwatch.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/host/parallel.h"

namespace nodewright {
namespace {

// Rows by bucket; 0: the eager plan's.
std::map<int, int> plans_of(const StepSlotsOptions& options) {
  std::map<int, int> rows;
  for (const int bucket : options.buckets.sizes()) rows[bucket] = bucket;
  if (options.eager_rows > 0) rows[0] = options.eager_rows;
  return rows;
}

DecodeLimits limits_of(const StepSlotsOptions& options) {
  return {.rows = std::max(options.buckets.largest(), options.eager_rows),
          .max_context = options.max_context,
          .sequences = options.sequences,
          .products_from = options.products_from,
          .numerics = options.numerics,
          .most_sampled = options.most_sampled,
          .hidden = options.hidden,
          .tuning = options.tuning,
          .adapters = options.adapters};
}

// Few on the CPU driver, where the rows of a slice that do not count cost as much as the others.
constexpr int64_t kRowsOfSliceOnCpu = 8;

ScoreLimits score_limits_of(const Device& device, const DecoderModel& model, const StepSlotsOptions& options) {
  return score_limits(model.config(), limits_of(options), device.driver().is_cpu() ? kRowsOfSliceOnCpu : kRowsOfSlice);
}

StepShape shape_of(const DecoderModel& model, const StepSlotsOptions& options, int rows) {
  return step_shape(model.config(), limits_of(options), rows);
}

}  // namespace

StepSlots::StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options)
    : StepSlots({&device, &kernels, &model}, options, std::span<const ModelPlace>()) {}

StepSlots::StepSlots(const ModelPlace& place, const StepSlotsOptions& options, std::span<const ModelPlace> others)
    : device_(*place.device),
      kernels_(*place.kernels),
      model_(place.model),
      is_part_(place.model->config().shard.is_part()),
      page_bytes_(KvCache::page_bytes(place.model->config())),
      compute_(device_, "steps"),
      copies_(device_, "tokens") {
  const ModelConfig& config = model_->config();
  for (int64_t layer = 0; layer < config.layers; ++layer) group_of_layer_.push_back(config.page_group(layer));
  begin(options);
  for (const ModelPlace& other : others)
    others_.push_back(std::unique_ptr<StepSlots>(new StepSlots(other, options, *this)));
  if (is_team()) make_exchange(options);
  make_adapters(*model_, options);
  prepare_graphs(options);
  int64_t pages = 0;
  for_each_rank([&](StepSlots& rank) {
    const int64_t own = rank.pages_of(rank.model_->config(), options);
    pages = pages == 0 ? own : std::min(pages, own);
  });
  for_each_rank([&](StepSlots& rank) { rank.make_cache(*rank.model_, options, pages); });
  build(options);
  wait_for_weights();
}

// What needs no other rank, before anything is built.
void StepSlots::begin(const StepSlotsOptions& options) {
  bind_kernels(*model_, options);
  make_slots(*model_, options);
}

void StepSlots::wait_for_weights() {
  Stopwatch watch;
  for_each_rank([](const StepSlots& rank) { rank.model_->wait(); });
  built_.waited_ms = watch.lap_ms();
}

void StepSlots::rebuild(const DecoderModel& model, const StepSlotsOptions& options) {
  model_ = &model;
  for_each_rank([](StepSlots& rank) { rank.slots_.clear(); });
  for_each_rank([&](StepSlots& rank) { rank.begin(options); });
  if (is_team()) make_exchange(options);
  prepare_graphs(options);
  for_each_rank([&](const StepSlots& rank) { check_within(options.memory_limit, rank.memory_); });
  build(options);
  wait_for_weights();
}

void StepSlots::make_slots(const DecoderModel& model, const StepSlotsOptions& options) {
  const DecodeLimits limits = limits_of(options);
  for (int i = 0; i < kSlots; ++i) {
    const std::string name = "slot" + std::to_string(i);
    slots_.push_back({.memory = memory_of_slot(model, limits, i),
                      .choices = options.choices ? choices_of_slot(model, limits, i) : nullptr,
                      .scores = nullptr,
                      .tables = nullptr,
                      .sampled = Event(device_, name + ".sampled"),
                      .copied = Event(device_, name + ".copied"),
                      .graphs = {}});
    Slot& slot = slots_.back();
    slot.tables = std::make_unique<TableUpdates>(device_, kernels_, slot.memory->state(1), compute_);
    if (!scores_prompts(options)) continue;
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
  const DecodeLimits limits = limits_of(options);
  const auto add = [&](const StepShape& shape) {
    std::ranges::move(decoder_kernel_requests(model.config(), shape, device_.properties()),
                      std::back_inserter(requests));
  };
  for (const auto& [bucket, rows] : plans_of(options)) {
    const StepShape shape = shape_of(model, options, rows);
    add(shape);
    if (limits.adapters.any()) add(with_adapters(shape, limits));
  }
  if (scores_prompts(options))
    std::ranges::move(
        score_kernel_requests(model.config(), score_limits_of(device_, model, options), device_.properties()),
        std::back_inserter(requests));
  if (options.choices)
    for (const auto& [bucket, rows] : plans_of(options))
      for (KernelRequest& request :
           choice_kernel_requests(std::min<int64_t>(rows, limits_of(options).sampled()), device_.properties()))
        requests.push_back(std::move(request));
  requests.push_back(TableUpdates::kernel_request());
  kernels_.prepare(requests);
  bound_.clear();
  bound_adapted_.clear();
  for (const auto& [bucket, rows] : plans_of(options)) {
    const StepShape shape = shape_of(model, options, rows);
    bound_.emplace(bucket, decoder_kernels(kernels_, model.config(), shape));
    if (limits.adapters.any())
      bound_adapted_.emplace(bucket, decoder_kernels(kernels_, model.config(), with_adapters(shape, limits)));
  }
}

// From the plans themselves, over a cache of one page. The pages that there will be are what is left of the memory.
void StepSlots::prepare_graphs(const StepSlotsOptions& options) {
  built_ = {};
  if (options.mode == RunMode::eager) return;
  std::vector<std::unique_ptr<KvCache>> smallest;  // by rank
  std::vector<const KvCache*> caches;
  for_each_rank([&](const StepSlots& rank) {
    smallest.push_back(std::make_unique<KvCache>(rank.device_, rank.model_->config(), 1));
    caches.push_back(smallest.back().get());
  });
  uint64_t bytes = 0;
  LibraryLoader libraries;
  const auto add = [&](const Plan& plan) { bytes += kSlots * estimate_exec(plan).bytes; };
  for (const auto& [bucket, rows] : plans_of(options)) {
    if (bucket == 0) continue;
    const DecodeState state = slots_[0].memory->state(rows);
    std::vector<Plan> steps;  // by rank
    if (is_team())
      steps = team_plan(0, bucket, rows, caches, options.policy).ranks;
    else
      steps.push_back(step_plan(*caches[0], bucket, state, options.policy));
    add(steps[0]);
    Stopwatch watch;
    for (const Plan& step : steps)
      if (!device_.driver().is_cpu()) libraries.load(step);
    built_.products_ms += watch.lap_ms();
    if (options.adapters.any())
      add(decoder_plan(device_, *model_, bound_adapted_.at(bucket), *caches[0], state, DecodePurpose::serve,
                       options.policy, adapters_.get()));
    if (!options.choices) continue;
    const ChoiceState choice = slots_[0].choices->state(rows);
    add(choice_plan(device_, model_->config().vocab, choice_kernels(kernels_, choice), state, choice, options.policy));
  }
  if (scores_prompts(options)) {
    const ScoreKernels scoring = score_kernels(kernels_, model_->config(), slots_[0].scores->limits());
    const Plan slice = score_plan(device_, *model_, scoring, slots_[0].scores->slice(0),
                                  slots_[0].choices->state(1).counts, 0, options.policy);
    bytes += kSlots * static_cast<uint64_t>(slots_[0].scores->limits().slices()) * estimate_exec(slice).bytes;
    if (!device_.driver().is_cpu()) libraries.load(slice);
  }
  built_.products = libraries.loaded();
  for_each_rank([&](StepSlots& rank) { rank.memory_.graphs = bytes; });
}

Plan StepSlots::step_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy) const {
  return decoder_plan(device_, *model_, bound_.at(bucket), cache, state, DecodePurpose::serve, policy);
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

// The driver takes calls in turns, but planning and most of adding are ours: 1, 2, 4, 6, 8 and 16 threads took 131,
// 103, 79, 80, 81 and 85 ms for the 102 graphs of Llama-3.2-1B (bench/results/2026-11-24-h200-start.txt).
constexpr size_t kMostBuildingThreads = 6;

// One alone where a stream is captured, and where every call is observed: a trace repeats from run to run.
size_t StepSlots::building_threads(const StepSlotsOptions& options) const {
  if (options.mode != RunMode::explicit_ || options.prefill != PrefillForm::graph ||
      device_.driver().observer() != nullptr)
    return 1;
  return std::min(usable_threads(), kMostBuildingThreads);
}

void StepSlots::build(const StepSlotsOptions& options) {
  const std::map<int, int> plans = plans_of(options);
  std::vector<int> buckets;  // a job each: two slots share the library's kernels
  for (const auto& [bucket, rows] : plans | std::views::reverse) buckets.push_back(bucket);
  for_each_rank([&](StepSlots& rank) {
    for (const auto& [bucket, rows] : plans)
      for (Slot& slot : rank.slots_) slot.graphs[bucket].state = slot.memory->state(rows);
  });
  built_.graphs.resize(buckets.size() * slots_.size());
  built_.threads = building_threads(options);
  built_.free_before = device_.free_bytes();
  std::mutex mutex;
  int count = 0;
  Stopwatch watch;
  in_parallel(buckets.size(), built_.threads, [&](size_t job) {
    const ContextGuard current(device_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      Stopwatch of_graph;
      BuiltBucket& built = built_.graphs[job * slots_.size() + i];
      built = {.slot = static_cast<int>(i), .bucket = buckets[job], .total = static_cast<int>(built_.graphs.size())};
      build_step(options, built);
      built.ms = of_graph.lap_ms();
      const std::lock_guard lock(mutex);
      built.built = ++count;
      if (options.built) options.built(built);
    }
  });
  built_.ms = watch.lap_ms();
  if (options.choices) {
    for_each_rank([&](StepSlots& rank) { rank.build_choices(options); });
    if (scores_prompts(options)) build_slices(*model_, options);
    built_.choice_ms = watch.lap_ms();
  }
  built_.free_after = device_.free_bytes();
}

// The graph of a bucket in a slot, of a team those of all ranks.
void StepSlots::build_step(const StepSlotsOptions& options, BuiltBucket& built) {
  const int bucket = built.bucket;
  Graph& graph = slot_at(built.slot).graphs.at(bucket);
  if (is_team()) return build_team_step(options, built);
  const RunMode mode = mode_of_bucket(options, bucket);
  Plan plan = step_plan(*cache_, bucket, graph.state, options.policy);
  if (mode != RunMode::eager) built.bytes = estimate_exec(plan).bytes;
  if (options.prefill != PrefillForm::graph)
    graph.prompt_run = std::make_unique<PromptRun>(plan, options.prefill, compute_);
  graph.run = std::make_unique<PlanRun>(std::move(plan), mode, compute_);
  if (const ExplicitGraph* exec = graph.run->explicit_graph()) built.nodes = exec->stats().nodes;
  if (options.adapters.any()) build_adapted(*model_, options, bucket, graph, built);
}

void StepSlots::build_choices(const StepSlotsOptions& options) {
  const std::map<int, int> plans = plans_of(options);
  std::vector<int> buckets;
  for (const auto& [bucket, rows] : plans | std::views::reverse) buckets.push_back(bucket);
  in_parallel(buckets.size(), building_threads(options), [&](size_t job) {
    const ContextGuard current(device_);
    const int bucket = buckets[job];
    for (Slot& slot : slots_) {
      Graph& graph = slot.graphs.at(bucket);
      graph.choice = slot.choices->state(plans.at(bucket));
      graph.choice_run =
          std::make_unique<PlanRun>(choice_plan(device_, model_->config().vocab, choice_kernels(kernels_, graph.choice),
                                                graph.state, graph.choice, options.policy),
                                    mode_of_bucket(options, bucket), compute_);
    }
  });
}

void StepSlots::build_slices(const DecoderModel& model, const StepSlotsOptions& options) {
  const ScoreKernels scoring = score_kernels(kernels_, model.config(), slots_[0].scores->limits());
  const View<int32_t> counts = slots_[0].choices->state(1).counts;
  for (Slot& slot : slots_)
    for (int64_t index = 0; index < slot.scores->limits().slices(); ++index) {
      const ScoreState state = slot.scores->slice(index);
      Plan plan = score_plan(device_, model, scoring, state, counts, index, options.policy);
      slot.slices.push_back({state, std::make_unique<PlanRun>(std::move(plan), options.mode, compute_)});
    }
}

void StepSlots::launch(const Launch& launch) {
  Slot& slot = slot_at(launch.slot);
  const Graph& graph = slot.graphs.at(launch.bucket);
  graph.state.host_inputs.n_live.data[0] = launch.live;
  graph.state.host_inputs.n_sampled.data[0] = launch.sampled;
  graph.state.host_inputs.keeps_logits.data[0] = launch.chooses_again ? 1 : 0;
  slot.bucket = launch.bucket;
  slot.tokens = launch.sampled;
  slot.hidden = static_cast<uint64_t>(launch.hidden * hidden_);
  for_each_rank([&](StepSlots& rank) { rank.submit_changes(launch); });
  if (clock_ != nullptr) clock_->begin(compute_);
  const auto& prompt_run = launch.adapted ? graph.adapted_prompt_run : graph.prompt_run;
  if (graph.team_run)
    graph.team_run->launch(*streams_);
  else if (launch.prompt && prompt_run)
    prompt_run->launch();
  else
    (launch.adapted ? graph.adapted_run : graph.run)->launch();
  launch_slices(slot, graph, launch.scored);
  if (clock_ != nullptr) clock_->end(compute_);
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

size_t StepSlots::slices_of(const Slot& slot, size_t scored) const {
  if (scored == 0) return 0;
  const auto rows = static_cast<size_t>(slot.scores->limits().slice_rows);
  return (scored + rows - 1) / rows;
}

void StepSlots::launch_slices(Slot& slot, const Graph& graph, std::span<const ScoredRow> scored) {
  slot.scored = scored.size();
  for (size_t index = 0; index < slices_of(slot, scored.size()); ++index) {
    const Slice& slice = slot.slices.at(index);
    const ScoreInputs& in = slice.state.host_inputs;
    const auto rows = static_cast<size_t>(slice.state.rows);
    const std::span<const ScoredRow> own = scored.subspan(index * rows, std::min(rows, scored.size() - index * rows));
    slot.scores->place(in, graph.state);
    in.n_live.data[0] = static_cast<int32_t>(own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      in.rows.data[i] = own[i].step_row;
      in.tokens.data[i] = own[i].token;
      in.logprobs.data[i] = own[i].logprobs;
    }
    slice.run->launch();
  }
}

StepSlots::Score StepSlots::score(int slot, size_t index) const {
  const Slot& of = slots_.at(static_cast<size_t>(slot));
  const auto rows = static_cast<size_t>(of.scores->limits().slice_rows);
  return {of.slices.at(index / rows).state.host_outputs, static_cast<int32_t>(index % rows)};
}

void StepSlots::sample(int index, int32_t choices) {
  Slot& slot = slot_at(index);
  const Graph& graph = last_graph(index);
  if (choices > 0) {
    graph.choice.host_inputs.n_live.data[0] = choices;
    graph.choice_run->launch();
    // Every rank chooses the same; what the host says may change when all have read it.
    for (const auto& other : others_) {
      other->graph(index, slot.bucket).choice_run->launch();
      other->slot_at(index).sampled.record(other->compute_);
      copies_.wait(other->slot_at(index).sampled);
    }
  }
  // An event of its own, recorded now: what is submitted to the stream of steps later is not waited for.
  slot.sampled.record(compute_);
  copies_.wait(slot.sampled);
  read_device_async(copies_, graph.state.host_tokens.data, graph.state.tokens.address(),
                    static_cast<uint64_t>(slot.tokens) * sizeof(int32_t), "tokens");
  if (choices > 0)
    read_device_async(copies_, graph.choice.host_outputs.tokens.data, graph.choice.outputs_range.address,
                      graph.choice.outputs_range.bytes, "choices");
  if (const size_t slices = slices_of(slot, slot.scored); slices > 0) {
    const ScoreState& first = slot.slices.front().state;  // the others lie behind it
    read_device_async(copies_, reinterpret_cast<void*>(first.host_outputs_range.address), first.outputs_range.address,
                      slices * first.outputs_range.bytes, "scores");
  }
  if (slot.hidden > 0)
    read_device_async(copies_, graph.state.host_hidden.data, graph.state.hidden.address(), slot.hidden * sizeof(float),
                      "hidden");
  slot.copied.record(copies_);
}

std::span<const float> StepSlots::hidden(int slot) const {
  return {last_graph(slot).state.host_hidden.data, slots_.at(static_cast<size_t>(slot)).hidden};
}

std::span<const int32_t> StepSlots::wait(int index, int64_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  Slot& slot = slot_at(index);
  if (timeout_ms == 0) slot.copied.synchronize();
  const auto start = Clock::now();
  while (timeout_ms > 0 && !slot.copied.done()) {
    const auto waited = Clock::now() - start;
    timed_out_ = waited >= std::chrono::milliseconds(timeout_ms);
    if (timed_out_ && exchange_) exchange_->give_up();
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

const Plan* StepSlots::plan(int bucket) const {
  const auto found = slots_[0].graphs.find(bucket);
  if (found == slots_[0].graphs.end()) return nullptr;
  if (found->second.team_run) return &found->second.team_run->rank(0).plan();
  const ExplicitGraph* exec = found->second.run->explicit_graph();
  return exec == nullptr ? nullptr : &exec->plan();
}

void StepSlots::set_counts(int32_t sequence, std::span<const int32_t> counts) {
  const ChoiceState& choice = slots_[0].graphs.begin()->second.choice;
  const auto first = static_cast<uint64_t>(sequence * choice.counts_stride);
  write_view(device_, choice.counts.subview(first, counts.size()), counts, "counts");
  for (const auto& other : others_) other->set_counts(sequence, counts);
}

void StepSlots::poison(int slot) {
  slot_at(slot).memory->poison();
  if (slot_at(slot).choices) slot_at(slot).choices->poison();
  if (slot_at(slot).scores) slot_at(slot).scores->poison();
  for (const auto& other : others_) other->poison(slot);
}

}  // namespace nodewright
