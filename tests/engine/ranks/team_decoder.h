// A golden model split over the devices of a team, and the logits of its steps.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "graph/team/team_graph.h"
#include "tests/engine/ranks/team_parts.h"

namespace nodewright::test {

// One sequence in steps of `rows` rows of which it has all, the tokens at successive positions.
class TeamDecoder {
 public:
  TeamDecoder(LoadedTeam& loaded, int64_t rows, Numerics numerics = Numerics::fast, int64_t most_sampled = 0,
              AdapterLimits adapters = {}, int64_t lanes = 1)
      : parts_(loaded, rows, numerics, most_sampled, adapters, lanes),
        team_(loaded.devices),
        memory_(team_, "exchange", parts_.exchange_size()),
        streams_(team_, "steps"),
        graph_(memory_,
               plan_team(memory_, "decode", [&](GraphBuilder& g, TeamRank& rank) { parts_.describe(g, rank); })) {}

  // As forced_steps(). `poisons`: each step over NaN in all that it may not depend on.
  RankLogits forced(const Tokens& prompt, const Tokens& continuation, bool poisons = false) {
    return forced_steps(prompt, continuation, parts_.rows(),
                        [&](std::span<const int32_t> tokens, int64_t first) { return step(tokens, first, poisons); });
  }
  // The logits of the last token, on every rank.
  std::vector<Logits> step(std::span<const int32_t> tokens, int64_t first, bool poisons = false) {
    return logits(run(tokens, first, poisons));
  }
  // Runs a step; returns the row of its last token.
  int64_t run(std::span<const int32_t> tokens, int64_t first, bool poisons, bool keeps = true, bool chooses = true) {
    const int64_t last = parts_.write_step(tokens, first, poisons, keeps, chooses);
    launch();
    streams_.synchronize();
    return last;
  }

  // The last step again, without waiting for it.
  void launch() { graph_.launch(streams_); }
  const TeamStream& streams() const { return streams_; }
  std::vector<Logits> logits(int64_t of_row) const { return parts_.logits(of_row); }
  const TeamParts& parts() const { return parts_; }
  // As of TeamParts.
  void use_adapter(int32_t slot, const std::filesystem::path& folder) { parts_.use_adapter(streams_, slot, folder); }
  void adapter_of(std::function<int32_t(int32_t position)> slot) { parts_.adapter_of(std::move(slot)); }
  TeamGraph& graph() { return graph_; }

 private:
  TeamParts parts_;
  Team team_;
  ExchangeMemory memory_;
  TeamStream streams_;
  TeamGraph graph_;
};

}  // namespace nodewright::test
