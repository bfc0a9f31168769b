// plan_of: a dump shown again.
#include <initializer_list>
#include <string>
#include <utility>

#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "graph/read/read_graph.h"
#include "tests/graph/read/graph_by_hand.h"

namespace nodewright {
namespace {

class PlanOfTest : public GraphByHandTest {
 protected:
  // Two kernels that meet in y without an order, a child, and an edge that could be programmatic.
  Plan read() {
    const GraphHandle inside = new_graph(), graph = new_graph();
    add_accumulate(inside, h_, h_);
    CUgraphNodeParams child{};
    child.type = CU_GRAPH_NODE_TYPE_GRAPH;
    child.graph.graph = inside.get();
    const CUgraphNode first = add_accumulate(graph, y_, x_);
    add_accumulate(graph, z_, y_);
    add_accumulate(graph, x_, in_, {first});
    add(graph, child);
    return read_graph(device(), graph.get(),
                      {.name = "hand",
                       .uses = parse_uses("accumulate: argument 0 at " + std::to_string(offsetof(Accumulate, y)) +
                                              " updates 512, argument 0 at " + std::to_string(offsetof(Accumulate, x)) +
                                              " reads, waits",
                                          "uses.txt")});
  }
};

TEST_F(PlanOfTest, ADumpOfAReadPlanIsThatPlan) {
  Plan plan = read();
  const std::string report = order_report(plan);
  plan.device = nullptr;
  const std::string json = to_json(plan);
  const Plan again = plan_of({json, "dump.json"});
  EXPECT_EQ(to_text(again), to_text(plan));
  EXPECT_EQ(to_dot(again), to_dot(plan));
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(order_report(again), order_report(plan));
  EXPECT_NE(report.find("missing: 'accumulate.0'"), std::string::npos) << report;
  EXPECT_TRUE(diff_plans(plan, again).equal());
  EXPECT_NE(to_html({json, "dump.json"}).find("accumulate.2"), std::string::npos);
  expect_error([&] { ExplicitGraph exec(again); }, {"cannot use plan 'hand'"});
}

TEST_F(PlanOfTest, ADumpOfAPlanOfOursReadsTheSame) {
  GraphBuilder g(device(), "ours"), inner(device(), "inner");
  for (GraphBuilder* builder : {&g, &inner}) {
    declare_all(*builder);
    add_all(*builder, false);
  }
  g.child("part", std::move(inner).finish(EdgePolicy::full));
  const auto condition = g.condition("c", 1), again = g.condition("again", 1, false);
  g.launch("decide", machine().decide, {.value = x_, .condition = condition, .modulus = 2, .base = 0});
  g.if_else("if", condition, [&](GraphBuilder& body) { add_all(body, true); });
  g.launch("set", machine().decide, {.value = x_, .condition = again, .modulus = 2, .base = 0});
  g.while_loop("while", again, [&](GraphBuilder& body) {
    body.launch("decide", machine().decide, {.value = x_, .condition = again, .modulus = 2, .base = 0});
  });
  g.values("values", {write_to(x_, 7u), wait_until(x_, Until::any_bit, 3u)});
  g.library("library", {updates(y_)}, {.submit = [](CUstream) {}, .what = "a sum"});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  const Plan read = plan_of({to_json(plan), "dump.json"});
  EXPECT_EQ(to_text(read), to_text(plan));
  EXPECT_EQ(to_dot(read), to_dot(plan));
  EXPECT_TRUE(diff_plans(read, plan).equal()) << to_text(diff_plans(read, plan));
  EXPECT_EQ(order_report(read), "");
}

TEST_F(PlanOfTest, WhatMeansNothingIsRefusedByTheFile) {
  Plan plan = read();
  const std::string json = to_json(plan);
  for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
           {"\"kind\": \"kernel\"", "\"kind\": \"colonel\""},
           {"\"kind\": \"kernel\"", "\"kind\": \"memcpy\""},
           {"\"kind\": \"kernel\"", "\"kind\": \"child\""},
           {"\"access\": \"inout\"", "\"access\": \"both\""},
           {"\"buffer\": \"y\"", "\"buffer\": \"nobody\""},
           {"\"bytes\": 512,\n          \"access\"", "\"bytes\": 513,\n          \"access\""},
           {"\"WAR x[0,512)\"", "\"WAR nobody[0,4)\""},
           {"\"WAR x[0,512)\"", "\"WAR x[0,5e2)\""},
           {"\"WAR x[0,512)\"", "\"WAR x[0,512\""},
           {"\"hex\": \"", "\"hex\": \"0g"},
           {"\"waits_for_inputs\": true", "\"waits_for_inputs\": 1"},
           {"\"layer\": \"\"", "\"layer\": \"other\""},
       }) {
    std::string changed = json;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    expect_error([&] { plan_of({changed, "folder/dump.json"}); }, {"folder/dump.json"});
  }
}

TEST_F(PlanOfTest, AValueThatIsNoNumberIsRefused) {
  GraphBuilder g(device(), "numbers");
  declare_all(g);
  g.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 7});
  const std::string json = to_json(std::move(g).finish());
  constexpr std::string_view kValue = "\"value\": ";
  ASSERT_NE(json.find(kValue), std::string::npos);
  for (const std::string wrong : {"\"seven\"", "\"7 \"", "\"\"", "\"0x7\"", "\"99999999999\""}) {
    std::string changed = json;
    changed.replace(changed.find(kValue), kValue.size(), std::string(kValue) + wrong + ", \"was\": ");
    expect_error([&] { plan_of({changed, "dump.json"}); }, {"dump.json", wrong.substr(1, wrong.size() - 2)});
  }
}

}  // namespace
}  // namespace nodewright
