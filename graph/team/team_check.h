// The rules that a team's plans must follow, so that no rank waits for ever and none takes a value that is not meant
// for it. No driver sees more than one of the graphs: these rules replace the edges that cannot lead from one graph to
// another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/team/team_plan.h"

namespace nodewright {

// The rules.
enum class TeamRule : uint8_t {
  top_level,   // an exchange stands in the plan itself, not in a body or a child
  waits,       // its kernels wait for their inputs on every path, so nothing of this launch is read before
  same_order,  // exchanges are numbered from 0 in the order of the nodes, and have the same nodes on every rank
  meets_one,  // what is sent to a rank is taken there by one node of the same exchange, byte for byte, and nothing else
              // is
  two_slots,  // exchange k + 1, and of the next launch exchange 0, uses other memory than exchange k
  ordered,    // on every rank edges lead from where k is taken to where k + 1 is sent: its slot of k - 1 is free then
  even_count,  // a launch has an even number of exchanges, so that every launch begins with the same slot
  apart,       // no rank writes memory that another one touches, but for packets
  one_wave,  // all blocks of a kernel that takes packets fit on the device at once: each may wait for any of the peer's
};
// "the same order on all ranks": a rule as errors call it.
std::string_view to_string(TeamRule rule);

// One rule that is broken.
struct TeamProblem {
  TeamRule rule = TeamRule::top_level;
  size_t rank = 0;     // where
  std::string node;    // its name; "" where none is at fault alone
  std::string detail;  // how
};

// Empty for plans that may run as a team. By rule, then by rank. Asks the driver how many blocks and clusters fit.
std::vector<TeamProblem> team_problems(const TeamPlan& plan);

// Fills plan.exchanges. Throws Error with the first problem and how many there are.
void check_team(TeamPlan& plan);

}  // namespace nodewright
