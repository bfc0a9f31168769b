#include "engine/step_slots.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <string>

#include "runtime/error.h"

namespace nodewright {

StepSlots::StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options)
    : device_(device),
      kernels_(kernels),
      cache_(device, model.config(), options.pages),
      page_bytes_(KvCache::page_bytes(model.config())),
      layers_(model.config().layers),
      compute_(device, "steps"),
      copies_(device, "tokens") {
  make_slots(model, options);
  build(model, options);
}

void StepSlots::rebuild(const DecoderModel& model, const StepSlotsOptions& options) {
  slots_.clear();
  make_slots(model, options);
  build(model, options);
}

void StepSlots::make_slots(const DecoderModel& model, const StepSlotsOptions& options) {
  const DecodeLimits limits{std::max(options.buckets.largest(), options.eager_rows), options.max_context,
                            options.sequences, options.numerics};
  for (int i = 0; i < kSlots; ++i) {
    const std::string name = "slot" + std::to_string(i);
    slots_.push_back({.memory = i == 0 ? std::make_unique<DecodeSlot>(device_, model.config(), limits)
                                       : std::make_unique<DecodeSlot>(*slots_[0].memory),
                      .choices = !options.choices ? nullptr
                                 : i == 0         ? std::make_unique<ChoiceSlot>(device_, model.config(), limits)
                                                  : std::make_unique<ChoiceSlot>(*slots_[0].choices),
                      .sampled = Event(device_, name + ".sampled"),
                      .copied = Event(device_, name + ".copied"),
                      .graphs = {}});
  }
}

// What is in flight reads memory that is about to go.
StepSlots::~StepSlots() {
  for (const Stream* stream : {&compute_, &copies_}) {
    try {
      stream->synchronize();
    } catch (const Error&) {  // the device is lost, and nothing runs on it
    }
  }
}

void StepSlots::build(const DecoderModel& model, const StepSlotsOptions& options) {
  const ModelConfig& config = model.config();
  std::vector<int> buckets(options.buckets.sizes().begin(), options.buckets.sizes().end());
  if (options.eager_rows > 0) buckets.push_back(0);
  const auto rows_of = [&](int bucket) { return bucket == 0 ? options.eager_rows : bucket; };
  std::vector<KernelRequest> requests;
  for (const int bucket : buckets)
    for (KernelRequest& request :
         decoder_kernel_requests(config, rows_of(bucket), device_.properties().sm_count, options.numerics))
      requests.push_back(std::move(request));
  if (options.choices)
    for (KernelRequest& request : choice_kernel_requests()) requests.push_back(std::move(request));
  kernels_.prepare(requests);
  for (const int bucket : buckets | std::views::reverse) {
    const DecoderKernels bound = decoder_kernels(kernels_, config, rows_of(bucket), options.numerics);
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      Slot& slot = slots_[i];
      Graph& graph = slot.graphs[bucket];
      graph.state = slot.memory->state(rows_of(bucket));
      graph.run = std::make_unique<PlanRun>(
          decoder_plan(device_, model, bound, cache_, graph.state, DecodePurpose::serve, options.policy),
          bucket == 0 ? RunMode::eager : options.mode, compute_);
      if (slot.choices) {
        graph.choice = slot.choices->state(rows_of(bucket));
        graph.choice_run = std::make_unique<PlanRun>(
            choice_plan(device_, config.vocab, choice_kernels(kernels_, bound.sample, rows_of(bucket)), graph.state,
                        graph.choice, options.policy),
            bucket == 0 ? RunMode::eager : options.mode, compute_);
      }
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      const ExplicitGraph* built = graph.run->explicit_graph();
      if (options.built)
        options.built({.slot = static_cast<int>(i),
                       .bucket = bucket,
                       .nodes = built ? built->stats().nodes : 0,
                       .ms = took.count(),
                       .free_bytes = device_.free_bytes()});
    }
  }
}

void StepSlots::launch(const Launch& launch) {
  Slot& slot = slot_at(launch.slot);
  const Graph& graph = slot.graphs.at(launch.bucket);
  graph.state.host_inputs.n_live.data[0] = launch.live;
  graph.state.host_inputs.n_sampled.data[0] = launch.sampled;
  slot.bucket = launch.bucket;
  slot.tokens = launch.sampled;
  for (const PageCopy& copy : launch.copies)
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const CUdeviceptr pages = cache_.layer(layer).address();
      copy_device_async(compute_, pages + static_cast<uint64_t>(copy.to) * page_bytes_,
                        pages + static_cast<uint64_t>(copy.from) * page_bytes_, page_bytes_, "kv");
    }
  if (clock_ != nullptr) clock_->begin(compute_);
  graph.run->launch();
  if (clock_ != nullptr) clock_->end(compute_);
}

void StepSlots::sample(int index, int32_t choices) {
  Slot& slot = slot_at(index);
  const Graph& graph = last_graph(index);
  if (choices > 0) {
    graph.choice.host_inputs.n_live.data[0] = choices;
    graph.choice_run->launch();
  }
  // An event of its own, recorded now: what is submitted to the stream of steps later is not waited for.
  slot.sampled.record(compute_);
  copies_.wait(slot.sampled);
  read_device_async(copies_, graph.state.host_tokens.data, graph.state.tokens.address(),
                    static_cast<uint64_t>(slot.tokens) * sizeof(int32_t), "tokens");
  if (choices > 0)
    read_device_async(copies_, graph.choice.host_outputs.tokens.data, graph.choice.outputs_range.address,
                      graph.choice.outputs_range.bytes, "choices");
  slot.copied.record(copies_);
}

std::span<const int32_t> StepSlots::wait(int index) {
  Slot& slot = slot_at(index);
  slot.copied.synchronize();
  return {slot.graphs.at(slot.bucket).state.host_tokens.data, static_cast<size_t>(slot.tokens)};
}

void StepSlots::set_counts(int32_t sequence, std::span<const int32_t> counts) {
  const View<int32_t> all = slots_[0].graphs.begin()->second.choice.counts;
  write_view(device_, all.subview(static_cast<uint64_t>(sequence) * counts.size(), counts.size()), counts, "counts");
}

void StepSlots::poison(int slot) {
  slot_at(slot).memory->poison();
  if (slot_at(slot).choices) slot_at(slot).choices->poison();
}

uint64_t StepSlots::state_bytes() const {
  uint64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.memory->bytes() + (slot.choices ? slot.choices->bytes() : 0);
  return bytes;
}

}  // namespace nodewright
