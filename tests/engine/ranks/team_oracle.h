// What a team computes, on one device and without an exchange: the plans of all ranks as branches of one ordinary
// graph, in which every kernel that exchanges is replaced by its parts and by plain nodes that add the ranks' values in
// the order of the ranks. To be compared with the team, bit for bit.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph_exec.h"
#include "graph/team/team.h"
#include "runtime/stream.h"
#include "tests/engine/ranks/team_parts.h"

namespace nodewright::test {

class OneDeviceTeam {
 public:
  // `loaded`: all on one device. The other devices lend the addresses of packets, which nothing touches.
  // `collectives`: the plans are those of ranks that exchange by a library's calls, each of which becomes a copy from
  // every rank.
  OneDeviceTeam(LoadedTeam& loaded, int64_t rows, Numerics numerics = Numerics::fast, int64_t most_sampled = 0,
                bool collectives = false);

  // As TeamDecoder's.
  int64_t run(std::span<const int32_t> tokens, int64_t first, bool poisons, bool keeps = true);
  const TeamParts& parts() const { return parts_; }
  const Plan& plan() const { return graph_->plan(); }

 private:
  TeamParts parts_;
  Team team_;
  ExchangeMemory memory_;
  std::vector<DeviceArray<float>> products_;    // by rank: [rows, stride] what a product gave, and its bias
  std::optional<DeviceArray<float>> values_;    // [ranks, rows, hidden] what each rank would have sent
  std::optional<DeviceArray<bf16>> embedding_;  // [vocab, stride] of all ranks
  Stream stream_;
  std::optional<ExplicitGraph> graph_;
};

}  // namespace nodewright::test
