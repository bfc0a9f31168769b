// The parts of a golden model that the ranks of a team have, each on a device of its own or all on one: weights, slots,
// kernels and cache, and the inputs and results of their steps. What the tests of tensor parallel decoding share.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/step_inputs.h"
#include "engine/topology/step_slots.h"
#include "graph/team/team.h"
#include "models/adapters/adapter_slots.h"
#include "models/lowering/decoder_kernels.h"
#include "models/plan/decoder_graph.h"
#include "models/step/lanes.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

// `spec`: of the CPU driver, with its options; or a GPU, beside which the next ones are taken.
inline OpenedDevice devices_of(const std::string& spec, int ranks, Observe observe) {
  const bool is_cpu = spec.starts_with("cpu");
  const std::string all = (is_cpu ? spec + (spec == "cpu" ? ":" : ",") + "devices=" + std::to_string(ranks) : "cuda");
  const DeviceChoice chosen = choose_devices(all, ranks, "a test");
  return open_devices(open_driver(chosen.driver), chosen.ordinals, observe);
}

// The devices, and on them the parts of the model.
struct LoadedTeam {
  // Each part on its rank's device.
  LoadedTeam(const std::filesystem::path& folder, int ranks, const std::string& spec, bool draws = false,
             Observe observe = Observe::no, CacheFormat cache = CacheFormat::bf16)
      : opened(devices_of(spec, ranks, observe)) {
    devices.push_back(opened.device.get());
    for (const auto& device : opened.more) devices.push_back(device.get());
    load(folder, devices, draws, cache);
  }
  // The same parts once more, all on the first device of `beside`, which must outlive this.
  LoadedTeam(const std::filesystem::path& folder, const LoadedTeam& beside, bool draws) : devices(beside.devices) {
    load(folder, std::vector<Device*>(devices.size(), devices[0]), draws);
  }
  Device& device(size_t rank) const { return kernels[rank]->device(); }  // that has the rank's part
  size_t ranks() const { return devices.size(); }

  OpenedDevice opened;  // empty beside another
  std::vector<Device*> devices;
  std::vector<std::unique_ptr<KernelCache>> kernels;
  std::vector<DecoderModel> models;
  std::vector<ModelPlace> places;

 private:
  void load(const std::filesystem::path& folder, const std::vector<Device*>& on, bool draws,
            CacheFormat cache = CacheFormat::bf16) {
    LoadOptions options{.draws_weights = draws, .cache = cache, .shard = {0, static_cast<int64_t>(on.size())}};
    for (Device* device : on) {
      kernels.push_back(std::make_unique<KernelCache>(*device));
      models.push_back(DecoderModel::begin_load(*device, folder, {}, options));
      ++options.shard.rank;
    }
    for (size_t rank = 0; rank < on.size(); ++rank) {
      models[rank].wait();
      places.push_back({on[rank], kernels[rank].get(), &models[rank]});
    }
  }
};

// What each rank has for steps of `rows` rows.
class TeamParts {
 public:
  // `most_sampled`: rows of a step of products that choose a token, at most; 0: all. `adapters`: with them the kernels
  // are those of rows that may have some. `lanes`: 2: a step that can be two halves is (models/step/lanes.h).
  // `collectives`: the ranks exchange by a library's calls.
  TeamParts(LoadedTeam& loaded, int64_t rows, Numerics numerics = Numerics::fast, int64_t most_sampled = 0,
            AdapterLimits adapters = {}, int64_t lanes = 1, bool collectives = false)
      : loaded_(loaded), rows_(rows) {
    const DecodeLimits limits{.rows = rows,
                              .max_context = loaded.models[0].config().max_position,
                              .sequences = rows,
                              .numerics = numerics,
                              .most_sampled = most_sampled,
                              .adapters = adapters,
                              .collectives = collectives,
                              .lanes = lanes};
    for (size_t rank = 0; rank < loaded.ranks(); ++rank) {
      const ModelConfig& config = loaded.models[rank].config();
      Device& device = loaded.device(rank);
      slots_.push_back(rank == 0 ? std::make_unique<DecodeSlot>(device, config, limits)
                                 : DecodeSlot::of_rank(device, config, limits, *slots_[0]));
      states_.push_back(slots_.back()->state(rows));
      const int64_t pages = pages_for(limits.max_context);
      caches_.push_back(std::make_unique<KvCache>(device, config, pages));
      fill_device(device, caches_.back()->buffer().address(), std::byte{0xff}, caches_.back()->bytes(), "cache");
      const StepShape shape = adapters.any() ? slots_.back()->adapted_shape(rows) : slots_.back()->shape(rows);
      if (adapters.any()) adapters_.push_back(std::make_unique<AdapterSlots>(device, config, adapters));
      loaded.kernels[rank]->prepare(decoder_kernel_requests(*loaded.kernels[rank], config, shape));
      kernels_.push_back(decoder_kernels(*loaded.kernels[rank], config, shape));
      if (const std::optional<StepShape> lane = slots_.back()->lane_shape(rows))
        lane_kernels_.push_back(
            decoder_kernels(*loaded.kernels[rank], config, adapters.any() ? with_adapters(*lane, limits) : *lane));
      std::vector<int32_t> table;
      for (int32_t page = 0; page < pages; ++page) table.push_back(page);
      slots_.back()->write_table(0, 0, table);
    }
  }

  // What the ranks exchange in a step.
  ExchangeSize exchange_size() const {
    return nodewright::exchange_size(loaded_.models[0].config(), rows_, states_[0].sampled_rows,
                                     loaded_.devices[0]->properties().sm_count, in_lanes() ? kLanes : 1);
  }
  // The rank's plan where a library's calls exchange; only with `collectives`.
  Plan collective_plan(size_t rank, Collectives& group) const {
    return decoder_plan(loaded_.device(rank), loaded_.models[rank], kernels_[rank], *caches_[rank], states_[rank],
                        DecodePurpose::serve, EdgePolicy::programmatic, nullptr, &group);
  }
  // The nodes of the rank's part.
  void describe(GraphBuilder& g, TeamRank& rank) const {
    const size_t r = rank.index();
    describe_decoder(g, rank, loaded_.models[r], kernels_[r], *caches_[r], states_[r],
                     adapters_.empty() ? nullptr : adapters_[r].get(), in_lanes() ? &lane_kernels_[r] : nullptr);
  }

  // Fills a slot of every rank with an adapter, which all rows have from now on.
  void use_adapter(const TeamStream& streams, int32_t slot, const std::filesystem::path& folder) {
    std::vector<AdapterPlace> places;
    for (size_t rank = 0; rank < adapters_.size(); ++rank)
      places.push_back({&loaded_.device(rank), &loaded_.models[rank].config(), &adapters_[rank]->layout()});
    const AdapterLimits& limits = places[0].layout->limits();
    const AdapterImage image(LoraAdapter::open(folder, loaded_.models[0].config(), limits.rank), places);
    for (size_t rank = 0; rank < adapters_.size(); ++rank)
      adapters_[rank]->upload(streams.rank(rank), slot, image, rank);
    streams.synchronize();
    adapter_of_ = [slot](int32_t) { return slot; };
  }
  // Sets the adapter slot of the token at each position, or -1.
  void adapter_of(std::function<int32_t(int32_t position)> slot) { adapter_of_ = std::move(slot); }

  // Whether the steps are two lanes.
  bool in_lanes() const { return !lane_kernels_.empty(); }

  // Says a step of `tokens` of sequence 0, at successive positions from `first` on. `poisons`: over NaN in all that a
  // step may not depend on. `keeps`: the head leaves logits that no choice reads. `chooses`: of products the last row
  // does. Returns the row of the last token.
  int64_t write_step(std::span<const int32_t> tokens, int64_t first, bool poisons, bool keeps = true,
                     bool chooses = true) const {
    if (poisons)
      for (const auto& slot : slots_) slot->poison();
    const StepInputs& in = states_[0].host_inputs;
    const auto n = static_cast<int32_t>(tokens.size());
    in.n_live.data[0] = n;
    // In steps of products the first rows choose: then the last token's row comes first, as the engine has it.
    const bool one_chooses = states_[0].sampled_rows < rows_;
    const int32_t sampled = !one_chooses ? n : chooses ? std::min(n, 1) : 0;
    in.n_sampled.data[0] = sampled;
    in.keeps_logits.data[0] = keeps ? 1 : 0;
    const int64_t lane_rows = in_lanes() ? rows_ / 2 : 0;
    write_lanes(in, n, sampled, lane_rows);
    RowOrder order(n, sampled, lane_rows);
    for (int32_t i = 0; i < n; ++i) {
      const int64_t row = n - i <= sampled ? order.of_chosen() : order.of_other();
      const auto position = static_cast<int32_t>(first + i);
      write_row(in, row,
                {.token = tokens[static_cast<size_t>(i)],
                 .position = position,
                 .sequence = 0,
                 .adapter = adapter_of_(position),
                 .sampling = {}});
    }
    return one_chooses || n == 0 ? 0 : n - 1;
  }

  // The logits of a row of the last step, on every rank.
  std::vector<Logits> logits(int64_t of_row) const {
    std::vector<Logits> of_ranks;
    const auto vocab = static_cast<uint64_t>(loaded_.models[0].config().vocab);
    const auto row = static_cast<uint64_t>(of_row);
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      Logits logits(vocab);
      const View<float> from =
          states_[rank].logits.subview(row * static_cast<uint64_t>(states_[rank].logits_stride), vocab);
      read_view(loaded_.device(rank), std::span(logits), from, "logits");
      of_ranks.push_back(std::move(logits));
    }
    return of_ranks;
  }
  // That a row of the last step has chosen, on every rank.
  Tokens chosen(int64_t of_row) const {
    Tokens tokens;
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      const View<int32_t> from = states_[rank].tokens.subview(static_cast<uint64_t>(of_row), 1);
      read_view(loaded_.device(rank), std::span(&tokens.emplace_back(), 1), from, "tokens");
    }
    return tokens;
  }
  // All keys and values of a rank; NaN where nothing was written.
  std::vector<uint8_t> pages(size_t rank) const {
    std::vector<uint8_t> bytes(caches_[rank]->bytes());
    read_device(loaded_.device(rank), std::as_writable_bytes(std::span(bytes)), caches_[rank]->buffer().address(),
                "cache");
    return bytes;
  }

  LoadedTeam& loaded() const { return loaded_; }
  int64_t rows() const { return rows_; }
  const DecodeState& state(size_t rank) const { return states_[rank]; }
  const DecoderKernels& kernels(size_t rank) const { return kernels_[rank]; }
  const KvCache& cache(size_t rank) const { return *caches_[rank]; }

 private:
  LoadedTeam& loaded_;
  int64_t rows_;
  std::vector<std::unique_ptr<DecodeSlot>> slots_;
  std::vector<DecodeState> states_;
  std::vector<std::unique_ptr<AdapterSlots>> adapters_;  // by rank; empty: the kernels know none
  std::function<int32_t(int32_t)> adapter_of_ = [](int32_t) { return -1; };
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<DecoderKernels> kernels_;
  std::vector<DecoderKernels> lane_kernels_;  // by rank; empty: one lane
};

// Logits of the last row of each step, on every rank: [steps][ranks].
using RankLogits = std::vector<std::vector<Logits>>;

// The prompt in steps of `rows` rows, then the continuation token by token, after each the logits of its last token:
// one row before the first forced one, as forced_logits() of a Decoder. `step(tokens, first)`: runs one.
template <class Step>
RankLogits forced_steps(const Tokens& prompt, const Tokens& continuation, int64_t rows, const Step& step) {
  RankLogits all;
  size_t at = 0;
  while (at < prompt.size()) {
    const size_t count = std::min(prompt.size() - at, static_cast<size_t>(rows));
    const std::vector<Logits> last = step(std::span(prompt).subspan(at, count), static_cast<int64_t>(at));
    at += count;
    if (at == prompt.size()) all.push_back(last);
  }
  for (const int32_t token : continuation) all.push_back(step(std::span(&token, 1), static_cast<int64_t>(at++)));
  return all;
}

// Rank 0's logits, where all ranks have the same bits.
inline std::vector<Logits> agreed(const RankLogits& rows) {
  std::vector<Logits> first;
  for (const std::vector<Logits>& ranks : rows) {
    for (size_t rank = 1; rank < ranks.size(); ++rank) EXPECT_TRUE(same_bits(ranks[rank], ranks[0])) << "rank " << rank;
    first.push_back(ranks[0]);
  }
  return first;
}

}  // namespace nodewright::test
