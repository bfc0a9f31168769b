// One plan a rank, made of one description, and what is exchanged between them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/node.h"
#include "graph/team/team.h"

namespace nodewright {

// What one rank sends to another in an exchange: a use of a node of the sender's plan, and the use of a node of the
// receiver's that takes it. Indices into TeamPlan::ranks, Plan::nodes and PlanNode::uses.
struct ExchangeEdge {
  uint32_t number = 0;                  // of the exchange
  size_t from_rank = 0, to_rank = 0;    // sender, receiver
  uint32_t from_node = 0, to_node = 0;  // in each one's plan
  uint32_t buffer = 0;                  // of the receiver's plan
  uint64_t offset = 0, bytes = 0;       // in it
};

// A plan for each rank of a team. Plain data.
struct TeamPlan {
  std::string name;                     // that of rank 1 is "name@1"
  std::vector<Plan> ranks;              // by rank
  std::vector<ExchangeEdge> exchanges;  // by number, then by sender, then by receiver
};

// A rank as the description of its plan sees it.
class TeamRank {
 public:
  // What plan_team() makes.
  TeamRank(const ExchangeMemory& memory, size_t index) : memory_(memory), index_(index) {}

  size_t index() const { return index_; }                           // from 0
  size_t size() const { return memory_.team().size(); }             // ranks of the team
  Device& device() const { return memory_.team().device(index_); }  // the rank's
  // The next exchange, of `count` values from each rank to every other: the field of an argument struct. Throws Error
  // when the memory lacks room for `count` packets, or for another exchange.
  Exchange exchange(uint64_t count);
  // The same of a bulk exchange (kernels_src/exchange/bulk_sums.cuh), of `values` values, a multiple of 8.
  Exchange bulk_exchange(uint64_t values);
  uint32_t exchanges() const { return next_; }  // that the two have given out

 private:
  Exchange next_exchange(uint64_t values, uint64_t most,
                         View<Packet> (ExchangeMemory::*memory)(size_t, size_t, uint32_t, uint64_t) const);

  const ExchangeMemory& memory_;
  size_t index_;
  uint32_t next_ = 0;
};

// Adds the nodes of one rank's plan. Called once a rank; all calls make the same exchanges in the same order.
using DescribeRank = std::function<void(GraphBuilder&, TeamRank&)>;

// Builds a plan for each rank and checks them as a team (graph/team/team_check.h). `name` and `facts` are for dumps.
// Throws Error with what `describe` threw, or with the node, the rank and the rule that is broken.
TeamPlan plan_team(const ExchangeMemory& memory, const std::string& name, const DescribeRank& describe,
                   EdgePolicy policy = EdgePolicy::programmatic, const PlanFacts& facts = {});

// "l0.out@0 => l0.out@1 (exchange 0, partial@1[0,24576))"
std::string describe(const TeamPlan& plan, const ExchangeEdge& exchange);

// A line about the team, a line for each exchange between two ranks, and the plan of each rank whose dump differs from
// that of the rank before it but for the ranks' numbers.
std::string to_text(const TeamPlan& plan, bool all_ranks = false);

// {"name", "ranks": [each plan as graph_dump.h has it], "exchanges": [{"number", "from": [rank, node], "to": [rank,
// node], "buffer", "offset", "bytes"}]}
std::string to_json(const TeamPlan& plan);

// A page for a browser of one rank's plan, as graph_dump.h has it: nodes show what they send and take.
std::string to_html(const TeamPlan& plan, size_t rank = 0);

}  // namespace nodewright
