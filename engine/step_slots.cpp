#include "engine/step_slots.h"

#include <chrono>
#include <ranges>
#include <string>

#include "runtime/error.h"

namespace nodewright {

StepSlots::StepSlots(Device& device, KernelCache& kernels, const DecoderModel& model, const StepSlotsOptions& options)
    : device_(device),
      cache_(device, model.config(), options.pages),
      page_bytes_(KvCache::page_bytes(model.config())),
      layers_(model.config().layers),
      compute_(device, "steps"),
      copies_(device, "tokens") {
  const DecodeLimits limits{options.buckets.largest(), options.max_context, options.sequences, options.products_from};
  for (int i = 0; i < kSlots; ++i) {
    const std::string name = "slot" + std::to_string(i);
    slots_.push_back({.memory = i == 0 ? std::make_unique<DecodeSlot>(device, model.config(), limits)
                                       : std::make_unique<DecodeSlot>(*slots_[0].memory),
                      .sampled = Event(device, name + ".sampled"),
                      .copied = Event(device, name + ".copied"),
                      .graphs = {}});
  }
  build(model, kernels, options);
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

void StepSlots::build(const DecoderModel& model, KernelCache& kernels, const StepSlotsOptions& options) {
  const ModelConfig& config = model.config();
  std::vector<KernelRequest> requests;
  for (const int bucket : options.buckets.sizes())
    for (KernelRequest& request :
         decoder_kernel_requests(config, slots_[0].memory->shape(bucket), device_.properties().sm_count))
      requests.push_back(std::move(request));
  kernels.prepare(requests);
  for (const int bucket : options.buckets.sizes() | std::views::reverse) {
    const DecoderKernels bound = decoder_kernels(kernels, config, slots_[0].memory->shape(bucket));
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      Slot& slot = slots_[i];
      Graph& graph = slot.graphs[bucket];
      graph.state = slot.memory->state(bucket);
      Plan plan = decoder_plan(device_, model, bound, cache_, graph.state, DecodePurpose::serve, options.policy);
      if (options.prefill != PrefillForm::graph)
        graph.prompt_run = std::make_unique<PromptRun>(plan, options.prefill, compute_);
      graph.run = std::make_unique<PlanRun>(std::move(plan), options.mode, compute_);
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
  if (launch.prompt && graph.prompt_run)
    graph.prompt_run->launch();
  else
    graph.run->launch();
  // An event of its own, recorded now: what is submitted to the stream of steps later is not waited for.
  slot.sampled.record(compute_);
  copies_.wait(slot.sampled);
  read_device_async(copies_, graph.state.host_tokens.data, graph.state.tokens.address(),
                    static_cast<uint64_t>(launch.sampled) * sizeof(int32_t), "tokens");
  slot.copied.record(copies_);
}

std::span<const int32_t> StepSlots::wait(int index) {
  Slot& slot = slot_at(index);
  slot.copied.synchronize();
  return {slot.graphs.at(slot.bucket).state.host_tokens.data, static_cast<size_t>(slot.tokens)};
}

uint64_t StepSlots::state_bytes() const {
  uint64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.memory->bytes();
  return bytes;
}

}  // namespace nodewright
