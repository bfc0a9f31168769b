// A golden model cut into stages, and the logits of its steps: what the tests of pipeline stages share.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/plan_run.h"
#include "models/plan/stage_plans.h"
#include "runtime/context_guard.h"
#include "runtime/event.h"
#include "tests/engine/ranks/team_decoder.h"

namespace nodewright::test {

// The devices, and on each its layers of the model; one device with all of them where `count` is 1.
struct LoadedStages {
  LoadedStages(const std::filesystem::path& folder, int count, const std::string& spec, bool draws = false,
               Observe observe = Observe::no, CacheFormat cache = CacheFormat::bf16)
      : opened(devices_of(spec, count, observe)) {
    devices.push_back(opened.device.get());
    for (const auto& device : opened.more) devices.push_back(device.get());
    for (int64_t index = 0; index < count; ++index) {
      Device& device = *devices[static_cast<size_t>(index)];
      kernels.push_back(std::make_unique<KernelCache>(device));
      models.push_back(DecoderModel::begin_load(
          device, folder, {}, {.draws_weights = draws, .cache = cache, .stage = {.index = index, .count = count}}));
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      models[i].wait();
      places.push_back({devices[i], kernels[i].get(), &models[i]});
    }
    if (count > 1) team.emplace(devices);  // access to each other's memory
  }

  OpenedDevice opened;
  std::vector<Device*> devices;
  std::vector<std::unique_ptr<KernelCache>> kernels;
  std::vector<DecoderModel> models;
  std::vector<ModelPlace> places;
  std::optional<Team> team;
};

// One sequence in steps of `rows` rows of which it has all, the tokens at successive positions.
class StagesDecoder {
 public:
  StagesDecoder(LoadedStages& loaded, int64_t rows, RunMode mode = RunMode::explicit_,
                Numerics numerics = Numerics::fast)
      : loaded_(loaded), rows_(rows) {
    const DecodeLimits limits{
        .rows = rows, .max_context = loaded.models[0].config().max_position, .sequences = rows, .numerics = numerics};
    for (size_t i = 0; i < loaded.devices.size(); ++i) add_stage(i, limits);
    std::vector<StagePart> parts;
    for (size_t i = 0; i < loaded.devices.size(); ++i)
      parts.push_back({loaded.devices[i], &loaded.models[i], &kernels_[i], caches_[i].get(), states_[i]});
    std::vector<Plan> plans;
    if (parts.size() > 1)
      plans = stage_plans(parts, EdgePolicy::programmatic);
    else
      plans.push_back(decoder_plan(*loaded.devices[0], loaded.models[0], kernels_[0], *caches_[0], states_[0],
                                   DecodePurpose::serve, EdgePolicy::programmatic));
    for (size_t i = 0; i < plans.size(); ++i) {
      const ContextGuard current(*loaded.devices[i]);
      plans_.push_back(plans[i]);
      runs_.push_back(std::make_unique<PlanRun>(std::move(plans[i]), mode, *streams_[i]));
    }
  }

  // The prompt in steps of all rows, then the continuation token by token, after each the logits of its last token: as
  // TeamDecoder::forced().
  std::vector<Logits> forced(const Tokens& prompt, const Tokens& continuation, bool poisons = false) {
    std::vector<Logits> all;
    size_t at = 0;
    while (at < prompt.size()) {
      const size_t count = std::min(prompt.size() - at, static_cast<size_t>(rows_));
      const Logits last = step({prompt.data() + at, count}, static_cast<int64_t>(at), poisons);
      at += count;
      all.push_back(last);
    }
    for (const int32_t token : continuation) all.push_back(step({&token, 1}, static_cast<int64_t>(at++), poisons));
    return all;
  }

  Logits step(std::span<const int32_t> tokens, int64_t first, bool poisons) {
    if (poisons)
      for (const auto& slot : slots_) slot->poison();
    const StepInputs& in = states_[0].host_inputs;
    const auto n = static_cast<int32_t>(tokens.size());
    in.n_live.data[0] = n;
    // In steps of products the first rows choose: then the last token's row comes first, as the engine has it.
    const bool one_chooses = states_[0].sampled_rows < rows_;
    in.n_sampled.data[0] = one_chooses ? 1 : n;
    in.keeps_logits.data[0] = 1;
    for (int32_t i = 0; i < n; ++i) {
      const int32_t row = !one_chooses ? i : i == n - 1 ? 0 : i + 1;
      write_row(in, row,
                {.token = tokens[static_cast<size_t>(i)], .position = first + i, .sequence = 0, .sampling = {}});
    }
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (i > 0) streams_[i]->wait(handed_[i - 1]);
      runs_[i]->launch();
      handed_[i].record(*streams_[i]);
    }
    for (const auto& stream : streams_) stream->synchronize();
    return logits(one_chooses ? 0 : n - 1);
  }

  const std::vector<Plan>& plans() const { return plans_; }

 private:
  void add_stage(size_t i, const DecodeLimits& limits) {
    const ModelConfig& config = loaded_.models[i].config();
    Device& device = *loaded_.devices[i];
    slots_.push_back(i == 0 ? std::make_unique<DecodeSlot>(device, config, limits)
                            : DecodeSlot::of_rank(device, config, limits, *slots_[0]));
    states_.push_back(slots_.back()->state(rows_));
    const int64_t pages = pages_for(limits.max_context);
    caches_.push_back(std::make_unique<KvCache>(device, config, pages));
    kernels_.push_back(decoder_kernels(*loaded_.kernels[i], config, slots_.back()->shape(rows_)));
    std::vector<int32_t> table;
    for (int32_t page = 0; page < pages; ++page) table.push_back(page);
    slots_.back()->write_table(0, 0, table);
    streams_.push_back(std::make_unique<Stream>(device, "stage" + std::to_string(i)));
    handed_.emplace_back(device, "handed" + std::to_string(i));
  }

  Logits logits(int64_t row) const {
    const DecodeState& state = states_.back();
    Logits logits(static_cast<size_t>(loaded_.models[0].config().vocab));
    read_view(*loaded_.devices.back(), std::span(logits),
              state.logits.subview(static_cast<uint64_t>(row * state.logits_stride), logits.size()), "logits");
    return logits;
  }

  LoadedStages& loaded_;
  int64_t rows_;
  std::vector<std::unique_ptr<DecodeSlot>> slots_;
  std::vector<DecodeState> states_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<DecoderKernels> kernels_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Event> handed_;
  std::vector<Plan> plans_;
  std::vector<std::unique_ptr<PlanRun>> runs_;
};

}  // namespace nodewright::test
