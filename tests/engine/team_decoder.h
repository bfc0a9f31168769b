// A golden model split over the devices of a team, and the logits of its steps: what the tests of tensor parallel
// decoding share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/step_inputs.h"
#include "engine/device/step_slots.h"
#include "graph/team/team_graph.h"
#include "models/adapters/adapter_slots.h"
#include "models/lowering/decoder_kernels.h"
#include "models/plan/decoder_graph.h"
#include "tests/engine/golden_model.h"

namespace nodewright::test {

// `spec`: of the CPU driver, with its options; or a GPU, beside which the next ones are taken.
inline OpenedDevice devices_of(const std::string& spec, int ranks, Observe observe) {
  const bool is_cpu = spec.starts_with("cpu");
  const std::string all = (is_cpu ? spec + (spec == "cpu" ? ":" : ",") + "devices=" + std::to_string(ranks) : "cuda");
  const DeviceChoice chosen = choose_devices(all, ranks, "a test");
  return open_devices(open_driver(chosen.driver), chosen.ordinals, observe);
}

// The devices, and on each its part of the model.
struct LoadedTeam {
  LoadedTeam(const std::filesystem::path& folder, int ranks, const std::string& spec, bool draws = false,
             Observe observe = Observe::no)
      : opened(devices_of(spec, ranks, observe)) {
    devices.push_back(opened.device.get());
    for (const auto& device : opened.more) devices.push_back(device.get());
    LoadOptions options{.draws_weights = draws, .shard = {0, ranks}};
    for (Device* device : devices) {
      kernels.push_back(std::make_unique<KernelCache>(*device));
      models.push_back(DecoderModel::begin_load(*device, folder, {}, options));
      ++options.shard.rank;
    }
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      models[rank].wait();
      places.push_back({devices[rank], kernels[rank].get(), &models[rank]});
    }
  }

  OpenedDevice opened;
  std::vector<Device*> devices;
  std::vector<std::unique_ptr<KernelCache>> kernels;
  std::vector<DecoderModel> models;
  std::vector<ModelPlace> places;
};

// One sequence in steps of `rows` rows of which it has all, the tokens at successive positions. `adapters`: with them
// the graph is the one of rows that may have some.
class TeamDecoder {
 public:
  TeamDecoder(LoadedTeam& loaded, int64_t rows, AdapterLimits adapters = {}) : loaded_(loaded), rows_(rows) {
    const DecodeLimits limits{
        .rows = rows, .max_context = loaded.models[0].config().max_position, .sequences = rows, .adapters = adapters};
    for (size_t rank = 0; rank < loaded.devices.size(); ++rank) {
      const ModelConfig& config = loaded.models[rank].config();
      Device& device = *loaded.devices[rank];
      slots_.push_back(rank == 0 ? std::make_unique<DecodeSlot>(device, config, limits)
                                 : DecodeSlot::of_rank(device, config, limits, *slots_[0]));
      states_.push_back(slots_.back()->state(rows));
      const int64_t pages = pages_for(limits.max_context);
      caches_.push_back(std::make_unique<KvCache>(device, config, pages));
      const DecodeSlot& slot = *slots_.back();
      kernels_.push_back(
          decoder_kernels(*loaded.kernels[rank], config, adapters.any() ? slot.adapted_shape(rows) : slot.shape(rows)));
      if (adapters.any()) adapters_.push_back(std::make_unique<AdapterSlots>(device, config, adapters));
      std::vector<int32_t> table;
      for (int32_t page = 0; page < pages; ++page) table.push_back(page);
      slots_.back()->write_table(0, 0, table);
    }
    team_.emplace(loaded.devices);
    memory_.emplace(*team_, "exchange",
                    exchange_size(loaded.models[0].config(), rows, states_[0].sampled_rows,
                                  loaded.devices[0]->properties().sm_count));
    streams_.emplace(*team_, "steps");
    graph_.emplace(*memory_, plan_team(*memory_, "decode", [&](GraphBuilder& g, TeamRank& rank) {
      const size_t r = rank.index();
      describe_decoder(g, rank, loaded.models[r], kernels_[r], *caches_[r], states_[r],
                       adapters_.empty() ? nullptr : adapters_[r].get());
    }));
  }

  // Fills a slot of every rank with an adapter, which all rows have from now on.
  void use_adapter(int32_t slot, const std::filesystem::path& folder) {
    std::vector<AdapterPlace> places;
    for (size_t rank = 0; rank < adapters_.size(); ++rank)
      places.push_back({loaded_.devices[rank], &loaded_.models[rank].config(), &adapters_[rank]->layout()});
    const AdapterLimits& limits = places[0].layout->limits();
    const AdapterImage image(LoraAdapter::open(folder, loaded_.models[0].config(), limits.rank), places);
    for (size_t rank = 0; rank < adapters_.size(); ++rank)
      adapters_[rank]->upload(streams_->rank(rank), slot, image, rank);
    streams_->synchronize();
    adapter_of_ = [slot](int32_t) { return slot; };
  }
  // Of the token at a position its adapter's slot, or -1.
  void adapter_of(std::function<int32_t(int32_t position)> slot) { adapter_of_ = std::move(slot); }

  // Of the last row of each step, on every rank: [steps][ranks].
  using Rows = std::vector<std::vector<Logits>>;

  // The prompt in steps of all rows, then the continuation token by token, after each the logits of its last token:
  // one row before the first forced one, as forced_logits() of a Decoder.
  Rows forced(const Tokens& prompt, const Tokens& continuation, bool poisons = false) {
    Rows all;
    size_t at = 0;
    while (at < prompt.size()) {
      const size_t count = std::min(prompt.size() - at, static_cast<size_t>(rows_));
      const std::vector<Logits> last = step({prompt.data() + at, count}, static_cast<int64_t>(at), poisons);
      at += count;
      if (at == prompt.size()) all.push_back(last);
    }
    for (const int32_t token : continuation) all.push_back(step({&token, 1}, static_cast<int64_t>(at++), poisons));
    return all;
  }

  std::vector<Logits> step(std::span<const int32_t> tokens, int64_t first, bool poisons = false) {
    if (poisons)
      for (const auto& slot : slots_) slot->poison();
    const StepInputs& in = states_[0].host_inputs;
    const auto n = static_cast<int32_t>(tokens.size());
    in.n_live.data[0] = n;
    // Of products the first rows choose: then the last token's row comes first, as the engine has it.
    const bool one_chooses = states_[0].sampled_rows < rows_;
    in.n_sampled.data[0] = one_chooses ? 1 : n;
    in.keeps_logits.data[0] = 1;
    for (int32_t i = 0; i < n; ++i) {
      const int32_t row = !one_chooses ? i : i == n - 1 ? 0 : i + 1;
      const auto position = static_cast<int32_t>(first + i);
      write_row(in, row,
                {.token = tokens[static_cast<size_t>(i)],
                 .position = position,
                 .sequence = 0,
                 .adapter = adapter_of_(position),
                 .sampling = {}});
    }
    graph_->launch(*streams_);
    streams_->synchronize();
    return logits(one_chooses ? 0 : n - 1);
  }

  // The last step again, without waiting for it.
  void launch() { graph_->launch(*streams_); }
  const TeamStream& streams() const { return *streams_; }

  // Of a row of the last step, on every rank.
  std::vector<Logits> logits(int64_t of_row) {
    std::vector<Logits> of_ranks;
    const auto vocab = static_cast<uint64_t>(loaded_.models[0].config().vocab);
    const auto row = static_cast<uint64_t>(of_row);
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      Logits logits(vocab);
      const View<float> from =
          states_[rank].logits.subview(row * static_cast<uint64_t>(states_[rank].logits_stride), vocab);
      read_view(*loaded_.devices[rank], std::span(logits), from, "logits");
      of_ranks.push_back(std::move(logits));
    }
    return of_ranks;
  }

  TeamGraph& graph() { return *graph_; }

 private:
  LoadedTeam& loaded_;
  int64_t rows_;
  std::vector<std::unique_ptr<DecodeSlot>> slots_;
  std::vector<DecodeState> states_;
  std::vector<std::unique_ptr<AdapterSlots>> adapters_;  // by rank; empty: the graph knows none
  std::function<int32_t(int32_t)> adapter_of_ = [](int32_t) { return -1; };
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<DecoderKernels> kernels_;
  std::optional<Team> team_;
  std::optional<ExchangeMemory> memory_;
  std::optional<TeamStream> streams_;
  std::optional<TeamGraph> graph_;
};

// Of rank 0, where all ranks have the same bits.
inline std::vector<Logits> agreed(const TeamDecoder::Rows& rows) {
  std::vector<Logits> first;
  for (const std::vector<Logits>& ranks : rows) {
    for (size_t rank = 1; rank < ranks.size(); ++rank) EXPECT_TRUE(same_bits(ranks[rank], ranks[0])) << "rank " << rank;
    first.push_back(ranks[0]);
  }
  return first;
}

}  // namespace nodewright::test
