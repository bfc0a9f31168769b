// Two dumps are compared by name: what was added, removed and changed, in which property; times and heads do not count.
#include "graph/dump/plan_diff.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "graph/dump/graph_dump.h"
#include "tests/graph/sketch.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

class PlanDiffTest : public SketchTest {
 protected:
  // load, then four layers of norm and project over `state`, each with a weight of its own, then an end.
  Plan layered() {
    GraphBuilder g(device(), "layered.b1", {{"bucket", "1"}});
    const View<float> x = buffer(g, "x", {.live_in = true}), state = buffer(g, "state"), h = buffer(g, "h");
    const View<float> y = buffer(g, "y", {.live_out = true});
    g.launch("load", waiting, {.left = x, .right = x, .y = state, .scale = 1});
    for (int i = 0; i < 4; ++i) {
      const std::string layer = "l" + std::to_string(i);
      const View<float> weight = buffer(g, layer + ".weight", {.live_in = true});
      const auto scope = g.scope(layer);
      g.launch("norm", waiting, {.left = state, .right = state, .gain = {weight.data, 8}, .y = h, .scale = 0.5f});
      g.launch("project", waiting, {.left = h, .right = h, .gain = {weight.data, 16}, .y = state, .scale = 2});
    }
    g.launch("end", waiting, {.left = state, .right = state, .y = y, .scale = 1});
    return std::move(g).finish(EdgePolicy::full);
  }

  PlanDiff diff_of(const Plan& before, const Plan& after) {
    const std::string a = to_json(before), b = to_json(after);
    return diff_plans({a, "a.json"}, {b, "b.json"});
  }

  // What one change of layered() makes, as text; it must make the plans different.
  std::string text_after(const std::function<void(Plan&)>& change) {
    Plan after = layered();
    change(after);
    const PlanDiff diff = diff_of(layered(), after);
    EXPECT_FALSE(diff.equal());
    return to_text(diff);
  }

  static constexpr uint32_t kNorm2 = 5;  // id of l2.norm
};

TEST_F(PlanDiffTest, APlanBuiltTwiceIsTheSame) {
  const PlanDiff diff = diff_of(layered(), layered());
  EXPECT_TRUE(diff.equal());
  EXPECT_NE(to_text(diff).find("the plans are the same\n"), std::string::npos);
  EXPECT_TRUE(diff.totals.empty());
}

TEST_F(PlanDiffTest, EachPropertyOfANodeIsTold) {
  ASSERT_EQ(layered().nodes.at(kNorm2).name, "l2.norm");
  const auto expect_line = [&](const std::string& line, const std::function<void(PlanNode&)>& change) {
    const std::string text = text_after([&](Plan& plan) { change(plan.nodes.at(kNorm2)); });
    EXPECT_NE(text.find("nodes\n  ~ l2.norm: " + line + "\n"), std::string::npos) << line << "\nin: " << text;
  };
  expect_line("grid 4×1×1 -> 5×1×1", [](PlanNode& node) { node.shape.grid[0] = 5; });
  expect_line("block 64×1×1 -> 32×1×1", [](PlanNode& node) { node.shape.block[0] = 32; });
  expect_line("shared_bytes 0 -> 16", [](PlanNode& node) { node.shape.shared_bytes = 16; });
  expect_line("kernel mix -> hasty_mix", [&](PlanNode& node) { node.kernel = hasty.loaded; });
  expect_line("waits_for_inputs true -> false", [](PlanNode& node) { node.waits_for_inputs = false; });
  expect_line("attributes priority none -> -1", [](PlanNode& node) { node.attributes.priority = -1; });
  expect_line("left state[0,1024) in -> state[0,512) in", [](PlanNode& node) { node.uses.at(0).bytes = 512; });
  expect_line("scale 0.5 -> 2.0", [](PlanNode& node) {
    const float two = 2;
    std::memcpy(node.arguments.data() + offsetof(Mix, scale), &two, sizeof two);
  });
}

TEST_F(PlanDiffTest, ConstantsAreToldOneByOneAndOfTheSameKernelOnly) {
  LoadedKernel built = named_kernel("mix", true), tuned = built, other = named_kernel("blend", true);
  built.request = {"mix", {{"kTile", 1}, {"kStages", 2}}};
  tuned.request = {"mix", {{"kTile", 1}, {"kStages", 3}, {"kRing", 4}}};
  other.request = {"blend", {{"kTile", 5}}};
  const auto text_of = [&](const LoadedKernel& kernel) {
    Plan before = layered(), after = layered();
    before.nodes.at(kNorm2).kernel = &built;
    after.nodes.at(kNorm2).kernel = &kernel;
    return to_text(diff_of(before, after));
  };
  EXPECT_NE(text_of(tuned).find("~ l2.norm: constant kStages 2 -> 3; constant kRing none -> 4\n"), std::string::npos)
      << text_of(tuned);
  EXPECT_NE(text_of(other).find("~ l2.norm: kernel mix -> blend\n"), std::string::npos) << text_of(other);
}

TEST_F(PlanDiffTest, ChangesOfABufferAndOfAnEdgeAreTold) {
  EXPECT_NE(text_after([](Plan& plan) {
              plan.buffers.at(1).range.bytes = 2048;
            }).find("buffers\n  ~ state: bytes 1024 -> 2048\n"),
            std::string::npos);
  EXPECT_NE(text_after([](Plan& plan) {
              plan.buffers.at(1).live_out = true;
            }).find("buffers\n  ~ state: live_out false -> true\n"),
            std::string::npos);
  EXPECT_NE(text_after([](Plan& plan) {
              plan.edges.at(0).type = EdgeType::programmatic;
            }).find("edges\n  ~ load -> l0.norm: type full -> programmatic\n"),
            std::string::npos);
  const std::string gone = text_after([](Plan& plan) { plan.edges.erase(plan.edges.begin()); });
  EXPECT_NE(gone.find("totals\n  ~ edges: 9 -> 8\n"), std::string::npos) << gone;
  EXPECT_NE(gone.find("edges\n  - load -> l0.norm: full\n"), std::string::npos) << gone;
}

TEST_F(PlanDiffTest, WhatOnlyOnePlanHasIsAddedOrRemoved) {
  Plan fewer = layered();
  fewer.nodes.pop_back();
  fewer.edges.pop_back();
  EXPECT_NE(to_text(diff_of(layered(), fewer)).find("nodes\n  - end: kernel mix\n"), std::string::npos);
  EXPECT_NE(to_text(diff_of(fewer, layered())).find("nodes\n  + end: kernel mix\n"), std::string::npos);
}

TEST_F(PlanDiffTest, LayersThatDifferAlikeShareALineUnlessAllAreAskedFor) {
  Plan after = layered();
  for (PlanNode& node : after.nodes)
    if (node.name.ends_with(".norm")) {
      node.shape.grid[0] = 9;
      node.uses.at(2).bytes = 16;  // of the layer's own weight
    }
  const PlanDiff diff = diff_of(layered(), after);
  EXPECT_NE(to_text(diff).find("\n  ~ *.norm: grid 4×1×1 -> 9×1×1; gain *.weight[0,32) frozen -> *.weight[0,16) "
                               "frozen | 4 layers: l0 .. l3\n"),
            std::string::npos)
      << to_text(diff);
  const std::string full = to_text(diff, true);
  for (const std::string layer : {"l0", "l1", "l2", "l3"})
    EXPECT_NE(full.find("\n  ~ " + layer + ".norm: grid"), std::string::npos) << full;
}

TEST_F(PlanDiffTest, TheNameTheBucketAndTheOrderBelongToThePlan) {
  EXPECT_NE(text_after([](Plan& plan) { plan.name = "layered.b2"; }).find("plan\n  ~ name: layered.b1 -> layered.b2\n"),
            std::string::npos);
  EXPECT_NE(text_after([](Plan& plan) {
              plan.facts = {{"bucket", "2"}};
            }).find("plan\n  ~ bucket: 1 -> 2\n"),
            std::string::npos);
  const std::string moved = text_after([](Plan& plan) {
    std::swap(plan.nodes.at(1), plan.nodes.at(2));
    plan.nodes.at(1).id = 1;
    plan.nodes.at(2).id = 2;
    for (Edge& edge : plan.edges) {
      for (uint32_t* end : {&edge.from, &edge.to})
        if (*end == 1 || *end == 2) *end = 3 - *end;
    }
  });
  EXPECT_NE(moved.find("order of nodes: here l0.norm -> here l0.project\n"), std::string::npos) << moved;
}

TEST_F(PlanDiffTest, PlansInsideANodeAreComparedUnderTheirPath) {
  Plan after = nested_plan();
  Plan body = *after.nodes.at(1).bodies.at(1);
  body.nodes.at(0).fill.value = 7;
  after.nodes.at(1).bodies.at(1) = std::make_shared<const Plan>(body);
  const std::string text = to_text(diff_of(nested_plan(), after));
  EXPECT_NE(text.find("nodes\n  ~ choose.else: clear: fill value 0 -> 7\n"), std::string::npos) << text;
}

TEST_F(PlanDiffTest, TimesAndHeadsAreToldAndDoNotCount) {
  const Plan plan = layered();
  PlanTimings slow{.plan = plan.name,
                   .nodes = {{.node = 0, .time_us = 2, .end_us = 2}, {.node = 1, .time_us = 8, .end_us = 10}},
                   .step_us = 10,
                   .plain_step_us = 9,
                   .samples = 3};
  PlanTimings fast = slow;
  fast.plain_step_us = 8;
  fast.nodes[1].time_us = 6;
  const std::string a = to_json(plan, &slow, {{"model", "one"}}), b = to_json(plan, &fast, {{"model", "two"}});
  const PlanDiff diff = diff_plans({a, "a.json"}, {b, "b.json"});
  EXPECT_TRUE(diff.equal());
  const std::string text = to_text(diff);
  EXPECT_NE(text.find("about\n  ~ model: one -> two\n"), std::string::npos) << text;
  EXPECT_NE(text.find("times, us\n  step: 9.000 -> 8.000 (-11.1 %)\n  l0.norm: 8.000 -> 6.000 (-25.0 %)\n"
                      "  load: 2.000 -> 2.000 (+0.0 %)\n"),
            std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(to_json(diff));
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["step"]["after_us"], 8);
  EXPECT_EQ(json["times"][0]["name"], "l0.norm");
}

TEST_F(PlanDiffTest, AFileThatIsNoDumpIsRefusedByWhatItLacks) {
  const std::string good = to_json(nested_plan());
  const auto refused = [&](const std::function<void(nlohmann::ordered_json&)>& spoil, std::string_view words) {
    auto json = nlohmann::ordered_json::parse(good);
    spoil(json);
    const std::string spoiled = json.dump();
    expect_error([&] { diff_plans({good, "a.json"}, {spoiled, "b.json"}); }, {"b.json", words});
    expect_error([&] { diff_plans({spoiled, "b.json"}, {good, "a.json"}); }, {"b.json", words});
  };
  refused([](auto& json) { json = 3; }, "is not a JSON object");
  refused([](auto& json) { json.erase("hash"); }, "the plan has no text \"hash\"");
  refused([](auto& json) { json.erase("facts"); }, "\"facts\"");
  refused([](auto& json) { json["nodes"] = 1; }, "the plan has no list \"nodes\"");
  refused([](auto& json) { json["nodes"][0] = 1; }, "entry 0 of \"nodes\" is not an object");
  refused([](auto& json) { json["nodes"][0]["id"] = 5; }, "node 0 has another id");
  refused([](auto& json) { json["nodes"][0].erase("kernel"); }, "entry 0 of \"nodes\" has no text \"kernel\"");
  refused([](auto& json) { json["nodes"][0]["grid"] = {1, 2}; }, "has not 3 sizes");
  refused([](auto& json) { json["nodes"][0]["grid"][1] = "x"; }, "no size");
  refused([](auto& json) { json["nodes"][0]["uses"][0].erase("buffer"); }, "no text \"buffer\"");
  refused([](auto& json) { json["nodes"][0]["arguments"][0].erase("role"); }, "no text \"role\"");
  refused([](auto& json) { json["nodes"][1]["bodies"][0].erase("edges"); }, "no list \"edges\"");
  refused([](auto& json) { json["edges"][0]["to"] = 99; }, "none of 3 nodes");
  refused([](auto& json) { json["edges"][0]["reasons"][0] = 1; }, "a reason that is no text");
  refused([](auto& json) { json["buffers"][0]["bytes"] = -1; }, "no number \"bytes\"");
  refused([](auto& json) { json["folds"]["bodies"]["1"] = 3; }, "no list \"1\"");
  refused(
      [](auto& json) {
        json["folds"]["runs"].push_back({{"first", 2}, {"count", 1}, {"times", 9}});
      },
      "does not fit 3 nodes");
  refused([](auto& json) { json["about"]["model"] = 3; }, "\"about\" has no text \"model\"");
  refused([](auto& json) { json["timings"] = 3; }, "\"timings\" is not an object");
  EXPECT_NE(error_of([&] {
              diff_plans({good, "a.json"}, {"{", "b.json"});
            }).find("'b.json': it is not JSON"),
            std::string::npos);
}

}  // namespace
}  // namespace nodewright
