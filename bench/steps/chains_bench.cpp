#include "bench/steps/chains_bench.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "bench/alternation.h"
#include "bench/steady_core.h"
#include "engine/device/step_inputs.h"
#include "graph/team/team_graph.h"
#include "models/kv_cache.h"
#include "models/plan/decoder_graph.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr int kLaunchesInFlight = 100;  // far below what a stream takes (docs/decisions/0029)

DecodeLimits limits_of_chain(const ChainsBenchOptions& options, int64_t rows) {
  return {.rows = rows,
          .max_context = options.context + 1,
          .sequences = rows,
          .numerics = options.numerics,
          .tuning = options.tuning};
}

// One rank's memory of one chain.
struct ChainOfRank {
  std::unique_ptr<DecodeSlot> slot;
  std::unique_ptr<KvCache> cache;
};

// So many chains that share `rows` rows, launched as one step.
class Chains {
 public:
  Chains(std::span<const ModelPlace> ranks, const ChainsBenchOptions& options, int64_t rows, size_t chains)
      : ranks_(ranks), team_(devices_of(ranks)), streams_(team_, "steps") {
    const int64_t of_chain = rows / static_cast<int64_t>(chains);
    const DecodeLimits limits = limits_of_chain(options, of_chain);
    memory_ = std::make_unique<ExchangeMemory>(
        team_, "exchange",
        exchange_size_of_chains(ranks[0].model->config(), of_chain, ranks[0].device->properties().sm_count,
                                static_cast<int64_t>(chains)));
    chains_.resize(chains);
    for (size_t chain = 0; chain < chains; ++chain) add_chain(chain, limits, of_chain, options.context);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      kernels_.push_back(
          decoder_kernels(*ranks[rank].kernels, ranks[rank].model->config(), chains_[0][rank].slot->shape(of_chain)));
    graph_ = std::make_unique<TeamGraph>(
        *memory_,
        plan_team(
            *memory_, "chains", [&](GraphBuilder& g, TeamRank& rank) { describe(g, rank, of_chain); }, options.policy));
  }

  // ms of a step, of `steps` that follow each other.
  double ms_of_step(int steps) {
    using Clock = std::chrono::steady_clock;
    graph_->launch(streams_);  // what one rank is after the other
    streams_.synchronize();
    const auto start = Clock::now();
    for (int step = 1; step <= steps; ++step) {
      graph_->launch(streams_);
      if (step % kLaunchesInFlight == 0) streams_.synchronize();
    }
    streams_.synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / steps;
  }

 private:
  static std::vector<Device*> devices_of(std::span<const ModelPlace> ranks) {
    std::vector<Device*> devices;
    for (const ModelPlace& rank : ranks) devices.push_back(rank.device);
    return devices;
  }

  void add_chain(size_t chain, const DecodeLimits& limits, int64_t rows, int64_t context) {
    const int64_t pages = pages_for(limits.max_context);
    for (const ModelPlace& rank : ranks_) {
      ChainOfRank& own = chains_[chain].emplace_back();
      const ModelConfig& config = rank.model->config();
      own.slot = &rank == &ranks_[0] ? std::make_unique<DecodeSlot>(*rank.device, config, limits)
                                     : DecodeSlot::of_rank(*rank.device, config, limits, *chains_[chain][0].slot);
      own.cache = std::make_unique<KvCache>(*rank.device, config, rows * pages);
      const DeviceBuffer& memory = own.cache->buffer();
      fill_device(*rank.device, memory.address(), std::byte{0}, memory.bytes(), memory.name());
      std::vector<int32_t> table(static_cast<size_t>(pages));
      for (int32_t row = 0; row < rows; ++row) {
        std::iota(table.begin(), table.end(), row * static_cast<int32_t>(pages));
        own.slot->write_table(row, 0, table);
      }
    }
    const StepInputs in = chains_[chain][0].slot->state(rows).host_inputs;
    in.n_live.data[0] = in.n_sampled.data[0] = static_cast<int32_t>(rows);
    in.keeps_logits.data[0] = 0;
    // Tokens of all ranks in turn: each sends some of the embedding, and so none gets two exchanges ahead there.
    const auto ranks = static_cast<int64_t>(ranks_.size());
    for (int32_t row = 0; row < rows; ++row)
      write_row(in, row,
                {.token = static_cast<int32_t>(ranks_[0].model->config().vocab * (row % ranks) / ranks),
                 .position = context,
                 .sequence = row,
                 .sampling = {}});
  }

  void describe(GraphBuilder& g, TeamRank& rank, int64_t rows) const {
    std::vector<const KvCache*> caches;
    std::vector<DecodeState> states;
    for (const std::vector<ChainOfRank>& chain : chains_) {
      caches.push_back(chain[rank.index()].cache.get());
      states.push_back(chain[rank.index()].slot->state(rows));
    }
    describe_chains(g, rank, *ranks_[rank.index()].model, kernels_[rank.index()], caches, states);
  }

  std::span<const ModelPlace> ranks_;
  Team team_;
  TeamStream streams_;
  std::unique_ptr<ExchangeMemory> memory_;
  std::vector<std::vector<ChainOfRank>> chains_;  // by chain, by rank
  std::vector<DecoderKernels> kernels_;           // by rank
  std::unique_ptr<TeamGraph> graph_;
};

}  // namespace

ChainsTimes bench_chains(std::span<const ModelPlace> ranks, const ChainsBenchOptions& options) {
  const auto refuse = [](std::string object, std::string detail) {
    throw Error({.doing = "use", .object = std::move(object), .detail = std::move(detail), .fault = Fault::usage});
  };
  if (ranks.size() < 2 || !ranks[0].model->config().shard.is_part())
    refuse("--overlap", "one device has no exchanges to hide; try: --tp 2");
  if (ranks[0].collectives != nullptr) refuse("--overlap", "a library's calls exchange; try: --collectives packets");
  if (options.rows < 2 * static_cast<int64_t>(ranks.size()) || options.rows % 2 != 0)
    refuse("--batch", fmt::format("{} rows are no two chains of at least a row for each of {} devices", options.rows,
                                  ranks.size()));
  Chains one(ranks, options, options.rows, 1), two(ranks, options, options.rows, 2);
  std::vector<double> one_ms, two_ms;
  SteadyCore core;
  const auto sampled = [&](Chains& chains, std::vector<double>& into) {
    return [&chains, &into, &options](bool counted) {
      const double ms = chains.ms_of_step(options.steps);
      if (counted) into.push_back(ms);
    };
  };
  const std::vector<std::function<void(bool)>> samples = {sampled(one, one_ms), sampled(two, two_ms)};
  alternate(samples, 1, options.rounds, core);
  return {spread_of(std::move(one_ms)), spread_of(std::move(two_ms))};
}

}  // namespace nodewright
