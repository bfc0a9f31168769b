#include "graph/team/team_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/edges/reachability.h"
#include "graph/nodes/node_parameters.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// One PeerOut or PeerIn use.
struct PeerRange {
  size_t rank;
  uint32_t node;
  uint32_t number;
  const Use* use;
  uint64_t address;
};

// The exchanges of one rank: its nodes in their order, what they send and what they take.
struct RankExchanges {
  std::vector<const PlanNode*> nodes;
  std::vector<PeerRange> sent, taken;
};

class TeamCheck {
 public:
  explicit TeamCheck(const TeamPlan& plan) : plan_(plan) {
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) ranks_.push_back(exchanges_of(rank));
  }

  std::vector<TeamProblem> run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      check_top_level(rank, plan_.ranks[rank], false);
      for (const PlanNode* node : ranks_[rank].nodes) check_waits(rank, *node);
      check_order(rank);
    }
    check_meetings();
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      for (size_t other = rank + 1; other < ranks_.size(); ++other) check_apart(rank, other);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      check_slots(rank);
      check_paths(rank);
      check_wave(rank);
    }
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const TeamProblem& a, const TeamProblem& b) { return a.rule < b.rule; });
    return std::move(problems_);
  }
  // What met, once run() has.
  std::vector<ExchangeEdge>& met() { return met_; }

 private:
  void report(TeamRule rule, size_t rank, const std::string& node, std::string detail) {
    problems_.push_back({rule, rank, node, std::move(detail)});
  }

  RankExchanges exchanges_of(size_t rank) const {
    RankExchanges all;
    const Plan& plan = plan_.ranks[rank];
    for (const PlanNode& node : plan.nodes) {
      if (!node.exchange) continue;
      all.nodes.push_back(&node);
      for (const Use& use : node.uses) {
        if (use.peer == PeerUse::none) continue;
        const PeerRange range{rank, node.id, *node.exchange, &use, plan.buffers[use.buffer].range.address + use.offset};
        (use.peer == PeerUse::out ? all.sent : all.taken).push_back(range);
      }
    }
    return all;
  }

  const PlanNode& node_of(const PeerRange& range) const { return plan_.ranks[range.rank].nodes[range.node]; }
  std::string text_of(const PeerRange& range) const {
    return describe_range(plan_.ranks[range.rank], range.use->buffer, range.use->offset, range.use->bytes);
  }

  void check_top_level(size_t rank, const Plan& plan, bool inside) {
    for (const PlanNode& node : plan.nodes) {
      if (inside && node.exchange)
        report(TeamRule::top_level, rank, node.name, fmt::format("it stands in '{}'", plan.name));
      for (const auto& body : node.bodies) check_top_level(rank, *body, true);
    }
  }

  void check_waits(size_t rank, const PlanNode& node) {
    if (!node.waits_for_inputs)
      report(TeamRule::waits, rank, node.name,
             fmt::format("kernel '{}' has a path without a wait", node.kernel_name()));
  }

  // Numbers may repeat in neighbours: one node sends and a later one takes.
  void check_order(size_t rank) {
    const std::vector<const PlanNode*>&own = ranks_[rank].nodes, &first = ranks_[0].nodes;
    uint32_t next = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      const uint32_t number = *own[i]->exchange;
      if (number != next && number + 1 != next)
        return report(TeamRule::same_order, rank, own[i]->name,
                      fmt::format("it takes part in exchange {}, and {} is the next", number, next));
      next = number + 1;
      if (rank == 0) continue;
      if (i >= first.size() || first[i]->name != own[i]->name || first[i]->exchange != own[i]->exchange)
        return report(TeamRule::same_order, rank, own[i]->name,
                      i >= first.size() ? "rank 0 has no such exchange"
                                        : fmt::format("it is exchange {}, and on rank 0 '{}' is exchange {}", number,
                                                      first[i]->name, *first[i]->exchange));
    }
    if (rank > 0 && own.size() < first.size())
      report(TeamRule::same_order, rank, first[own.size()]->name, "rank 0 has it, and this rank has not");
    counts_.push_back(next);
    if (next % 2 != 0)
      report(TeamRule::even_count, rank, own.back()->name, fmt::format("it is the last of {} exchanges", next));
  }

  void check_meetings() {
    std::map<const Use*, size_t> met;
    for (const RankExchanges& from : ranks_)
      for (const PeerRange& sent : from.sent) check_sent(sent, met);
    for (const RankExchanges& to : ranks_)
      for (const PeerRange& taken : to.taken)
        if (met[taken.use] != 1)
          report(TeamRule::meets_one, taken.rank, node_of(taken).name,
                 fmt::format("field '{}' takes {} in exchange {}, which {} nodes of other ranks send", taken.use->field,
                             text_of(taken), taken.number, met[taken.use]));
    std::stable_sort(met_.begin(), met_.end(), [](const ExchangeEdge& a, const ExchangeEdge& b) {
      return std::tie(a.number, a.from_rank, a.to_rank) < std::tie(b.number, b.from_rank, b.to_rank);
    });
  }

  void check_sent(const PeerRange& sent, std::map<const Use*, size_t>& met) {
    size_t takers = 0;
    for (const RankExchanges& to : ranks_)
      for (const PeerRange& taken : to.taken) {
        if (taken.rank == sent.rank || taken.number != sent.number || taken.address != sent.address ||
            taken.use->bytes != sent.use->bytes)
          continue;
        ++takers;
        ++met[taken.use];
        met_.push_back({sent.number, sent.rank, taken.rank, sent.node, taken.node, taken.use->buffer, taken.use->offset,
                        taken.use->bytes});
      }
    if (takers != 1)
      report(TeamRule::meets_one, sent.rank, node_of(sent).name,
             fmt::format("field '{}' sends {} in exchange {}, which {} nodes of other ranks take", sent.use->field,
                         text_of(sent), sent.number, takers));
  }

  void check_slots(size_t rank) {
    if (counts_.size() <= rank || counts_[rank] == 0 || counts_[rank] % 2 != 0) return;
    for (const PeerRange& now : ranks_[rank].taken)
      for (const PeerRange& next : ranks_[rank].taken)
        if (next.number == (now.number + 1) % counts_[rank] && now.address < next.address + next.use->bytes &&
            next.address < now.address + now.use->bytes)
          report(TeamRule::two_slots, rank, node_of(next).name,
                 fmt::format("exchange {} takes {}, and exchange {} before it takes {}", next.number, text_of(next),
                             now.number, text_of(now)));
  }

  void check_paths(size_t rank) {
    const Plan& plan = plan_.ranks[rank];
    Reachability before(plan.nodes.size());
    for (const Edge& edge : plan.edges) before.add(edge.from, edge.to);
    const auto reaches = [&](const PlanNode& a, const PlanNode& b) { return before.ordered(a.id, b.id); };
    for (const PeerRange& sent : ranks_[rank].sent)
      for (const PeerRange& taken : ranks_[rank].taken) {
        const PlanNode &sends = node_of(sent), &takes = node_of(taken);
        if (taken.number == sent.number && sent.node != taken.node && !reaches(sends, takes))
          report(TeamRule::ordered, rank, takes.name,
                 fmt::format("no edges lead to it from '{}', which sends in exchange {}", sends.name, sent.number));
        if (taken.number + 1 == sent.number && !reaches(takes, sends))
          report(TeamRule::ordered, rank, sends.name,
                 fmt::format("no edges lead to it, in exchange {}, from '{}', in exchange {}", sent.number, takes.name,
                             taken.number));
      }
  }

  // Buffers that overlap, mostly those of packets and of the abort word, have their uses compared.
  void check_apart(size_t rank, size_t other) {
    const Plan &a = plan_.ranks[rank], &b = plan_.ranks[other];
    for (uint32_t i = 0; i < a.buffers.size(); ++i)
      for (uint32_t j = 0; j < b.buffers.size(); ++j) {
        const NamedRange &x = a.buffers[i].range, &y = b.buffers[j].range;
        const bool is_memory = x.address < kConditionBase && !is_allocated(x.address);
        if (is_memory && x.address < y.address + y.bytes && y.address < x.address + x.bytes)
          compare_uses(rank, i, other, j);
      }
  }

  void compare_uses(size_t rank, uint32_t buffer, size_t other, uint32_t other_buffer) {
    const Plan &a = plan_.ranks[rank], &b = plan_.ranks[other];
    const auto each_use = [](const Plan& plan, uint32_t of, auto f) {
      for (const PlanNode& node : plan.nodes)
        for (const Use& use : node.uses)
          if (use.buffer == of) f(node, use, plan.buffers[of].range.address + use.offset);
    };
    each_use(a, buffer, [&](const PlanNode& node, const Use& use, uint64_t address) {
      each_use(b, other_buffer, [&](const PlanNode& second, const Use& with, uint64_t at) {
        const bool packets = use.peer != PeerUse::none && with.peer != PeerUse::none;
        if (packets || (!writes(use.access) && !writes(with.access)) || address >= at + with.bytes ||
            at >= address + use.bytes)
          return;
        report(TeamRule::apart, rank, node.name,
               fmt::format("field '{}' ({}) and '{}' of rank {} (field '{}': {}) share {}", use.field,
                           to_string(use.access), second.name, other, with.field, to_string(with.access),
                           describe_range(a, use.buffer, use.offset, use.bytes)));
      });
    });
  }

  // Blocks and clusters that fit on an otherwise idle device, as the driver says.
  void check_wave(size_t rank) {
    const ContextGuard current(*plan_.ranks[rank].device);
    for (const PlanNode* node : ranks_[rank].nodes) {
      const bool takes =
          std::any_of(node->uses.begin(), node->uses.end(), [](const Use& use) { return use.peer == PeerUse::in; });
      if (!takes) continue;
      const auto& [x, y, z] = node->attributes.cluster;
      if (const uint64_t cluster = uint64_t{x} * y * z; cluster != 1)
        check_clusters(rank, *node, cluster);
      else
        check_blocks(rank, *node);
    }
  }

  void check_blocks(size_t rank, const PlanNode& node) {
    const Device& device = *plan_.ranks[rank].device;
    int per_sm = 0;
    device.driver().check(
        device.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_sm, node.kernel->function, static_cast<int>(node.shape.threads()), node.shape.shared_bytes),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor", "count resident blocks of node", node.name);
    const uint64_t fit = static_cast<uint64_t>(per_sm) * static_cast<uint64_t>(device.properties().sm_count);
    if (node.shape.blocks() > fit)
      report(TeamRule::one_wave, rank, node.name,
             fmt::format("it has {} blocks, and {} fit on {} SMs", node.shape.blocks(), fit,
                         device.properties().sm_count));
  }

  void check_clusters(size_t rank, const PlanNode& node, uint64_t cluster) {
    const Device& device = *plan_.ranks[rank].device;
    LaunchAttributes attributes;
    const CUlaunchConfig config = launch_config(node, nullptr, false, attributes);
    int fit = 0;
    device.driver().check(device.driver().cuOccupancyMaxActiveClusters(&fit, node.kernel->function, &config),
                          "cuOccupancyMaxActiveClusters", "count resident clusters of node", node.name);
    if (node.shape.blocks() > static_cast<uint64_t>(fit) * cluster)
      report(TeamRule::one_wave, rank, node.name,
             fmt::format("it has {} clusters of {} blocks, and {} fit on {} SMs", node.shape.blocks() / cluster,
                         cluster, fit, device.properties().sm_count));
  }

  const TeamPlan& plan_;
  std::vector<RankExchanges> ranks_;
  std::vector<uint32_t> counts_;  // of exchanges, by rank
  std::vector<ExchangeEdge> met_;
  std::vector<TeamProblem> problems_;
};

}  // namespace

std::string_view to_string(TeamRule rule) {
  switch (rule) {
    case TeamRule::top_level:
      return "exchanges stand in the plan itself";
    case TeamRule::waits:
      return "the kernel of an exchange waits on every path";
    case TeamRule::same_order:
      return "the same exchanges in the same order on all ranks";
    case TeamRule::meets_one:
      return "what one rank sends, one node of the other takes";
    case TeamRule::two_slots:
      return "neighbouring exchanges use two slots";
    case TeamRule::ordered:
      return "edges lead from each exchange to the next";
    case TeamRule::even_count:
      return "an even number of exchanges a launch";
    case TeamRule::apart:
      return "ranks share no memory that one of them writes, but packets";
    case TeamRule::one_wave:
      return "all blocks of an exchange run at once";
  }
  return "?";
}

std::vector<TeamProblem> team_problems(const TeamPlan& plan) { return TeamCheck(plan).run(); }

void check_team(TeamPlan& plan) {
  TeamCheck check(plan);
  const std::vector<TeamProblem> problems = check.run();
  if (!problems.empty()) {
    const TeamProblem& first = problems[0];
    throw Error({.doing = "check team",
                 .object = plan.name,
                 .detail = fmt::format("{} problems, the first: node '{}' of rank {} breaks the rule '{}': {}",
                                       problems.size(), first.node, first.rank, to_string(first.rule), first.detail),
                 .advice = "describe the same exchanges on every rank (graph/team/team_check.h has the rules)"});
  }
  plan.exchanges = std::move(check.met());
}

}  // namespace nodewright
