#include "graph/team/team_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_json.h"
#include "graph/team/team_check.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_exchange(const ExchangeMemory& memory, size_t rank, std::string detail, std::string advice) {
  throw Error({.doing = "describe exchange",
               .object = memory.name(),
               .detail = fmt::format("on rank {}: {}", rank, detail),
               .advice = std::move(advice)});
}

// What a rank's plan touches of the memory of exchanges.
void declare_exchanges(const ExchangeMemory& memory, size_t rank, GraphBuilder& g) {
  for (size_t other = 0; other < memory.team().size(); ++other)
    g.declare(memory.packet_range(other), {.live_in = other == rank, .live_out = other != rank, .peer = other != rank});
  for (const NamedRange& word : memory.word_ranges(rank)) g.declare(word, {.live_in = true});
}

// "56 exchanges, 1376256 B sent"
std::string exchanges_of(const TeamPlan& plan) {
  uint64_t bytes = 0;
  for (const ExchangeEdge& exchange : plan.exchanges) bytes += exchange.bytes;
  return fmt::format("{} exchanges, {} B sent", plan.exchanges.empty() ? 0 : plan.exchanges.back().number + 1, bytes);
}

}  // namespace

Exchange TeamRank::exchange(uint64_t count) {
  return next_exchange(count, memory_.size().packets, &ExchangeMemory::packets);
}
Exchange TeamRank::bulk_exchange(uint64_t values) {
  return next_exchange(values, memory_.size().bulk, &ExchangeMemory::bulk);
}

Exchange TeamRank::next_exchange(uint64_t values, uint64_t most,
                                 View<Packet> (ExchangeMemory::*memory)(size_t, size_t, uint32_t, uint64_t) const) {
  if (values == 0 || values > most)
    refuse_exchange(memory_, index_, fmt::format("{} values, and there is room for {} from each rank", values, most),
                    "make the ExchangeMemory with as much room as the largest exchange needs");
  if (next_ >= memory_.size().most)
    refuse_exchange(memory_, index_, fmt::format("exchange {}, and a launch may have {}", next_, memory_.size().most),
                    "make the ExchangeMemory for more exchanges");
  Exchange e{};
  Optional<PeerOut<Packet>>* const to[] = {&e.to0, &e.to1, &e.to2, &e.to3, &e.to4, &e.to5, &e.to6, &e.to7};
  Optional<PeerIn<Packet>>* const from[] = {&e.from0, &e.from1, &e.from2, &e.from3,
                                            &e.from4, &e.from5, &e.from6, &e.from7};
  for (size_t other = 0; other < size(); ++other) {
    if (other == index_) continue;
    const View<Packet> there = (memory_.*memory)(other, index_, next_, values);
    const View<Packet> here = (memory_.*memory)(index_, other, next_, values);
    *to[other] = {there.data, there.count};
    *from[other] = {here.data, here.count};
  }
  e.launch = memory_.launch_number(index_);
  e.aborted = memory_.abort_word();
  e.seen = memory_.seen_word(index_);
  e.number = {next_++};
  e.most = memory_.size().most;
  e.rank = static_cast<uint32_t>(index_);
  return e;
}

TeamPlan plan_team(const ExchangeMemory& memory, const std::string& name, const DescribeRank& describe,
                   EdgePolicy policy, const PlanFacts& facts) {
  TeamPlan plan{.name = name, .ranks = {}, .exchanges = {}};
  for (size_t index = 0; index < memory.team().size(); ++index) {
    TeamRank rank(memory, index);
    GraphBuilder g(rank.device(), fmt::format("{}@{}", name, index), facts);
    declare_exchanges(memory, index, g);
    describe(g, rank);
    plan.ranks.push_back(std::move(g).finish(policy));
  }
  check_team(plan);
  return plan;
}

std::string describe(const TeamPlan& plan, const ExchangeEdge& exchange) {
  const Plan &from = plan.ranks[exchange.from_rank], &to = plan.ranks[exchange.to_rank];
  return fmt::format("{}@{} => {}@{} (exchange {}, {})", from.nodes[exchange.from_node].name, exchange.from_rank,
                     to.nodes[exchange.to_node].name, exchange.to_rank, exchange.number,
                     describe_range(to, exchange.buffer, exchange.offset, exchange.bytes));
}

std::string to_text(const TeamPlan& plan, bool all_ranks) {
  std::string text = fmt::format("team {}: {} ranks, {}\n", plan.name, plan.ranks.size(), exchanges_of(plan));
  for (const ExchangeEdge& exchange : plan.exchanges) text += "  " + describe(plan, exchange) + "\n";
  for (size_t rank = 0; rank < (all_ranks ? plan.ranks.size() : 1); ++rank) text += to_text(plan.ranks[rank]);
  return text;
}

std::string to_json(const TeamPlan& plan) {
  using Json = nlohmann::ordered_json;
  Json json = {{"name", plan.name}, {"ranks", Json::array()}, {"exchanges", Json::array()}};
  for (const Plan& rank : plan.ranks) json["ranks"].push_back(Json::parse(to_json(rank)));
  for (const ExchangeEdge& e : plan.exchanges)
    json["exchanges"].push_back({{"number", e.number},
                                 {"from", {e.from_rank, plan.ranks[e.from_rank].nodes[e.from_node].name}},
                                 {"to", {e.to_rank, plan.ranks[e.to_rank].nodes[e.to_node].name}},
                                 {"buffer", plan.ranks[e.to_rank].buffers[e.buffer].range.name},
                                 {"offset", e.offset},
                                 {"bytes", e.bytes}});
  return json.dump();
}

std::string to_html(const TeamPlan& plan, size_t rank) {
  return to_html(plan.ranks.at(rank), nullptr,
                 {{"rank", fmt::format("{} of {}", rank, plan.ranks.size())}, {"exchanged", exchanges_of(plan)}});
}

}  // namespace nodewright
