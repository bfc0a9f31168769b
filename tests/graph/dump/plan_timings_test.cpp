// Timings keep their values on the way through JSON, and those of another plan are refused by name.
#include "graph/timing/plan_timings.h"

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "graph/edges/plan_hash.h"
#include "tests/graph/sketch.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

class PlanTimingsTest : public SketchTest {
 protected:
  Plan chain() {
    GraphBuilder g(device(), "chain.b1", {{"bucket", "1"}});
    const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), y = buffer(g, "y", {.live_out = true});
    g.fill("clear", h, 0.0f);
    const auto layer = g.scope("l0");
    g.launch("first", waiting, {.left = x, .right = x, .gain = {}, .y = h, .scale = 1});
    g.launch("second", waiting, {.left = h, .right = x, .gain = {}, .y = y, .scale = 1});
    return std::move(g).finish(EdgePolicy::full);
  }

  // 3072 bytes a kernel node in `second`: two inputs of 1024 and an output of 1024.
  static PlanTimings timings() {
    return {.plan = "chain.b1",
            .nodes = {{.node = 0, .time_us = 1.25, .span_us = 1.25, .start_us = 0, .end_us = 1.25, .bracketed = true},
                      {.node = 1,
                       .time_us = 2,
                       .span_us = 3,
                       .overlap_us = 1,
                       .start_us = 0.25,
                       .end_us = 3.25,
                       .waited_us = 2.5},
                      {.node = 2, .time_us = 1.5, .span_us = 1.5, .start_us = 3.25, .end_us = 4.75}},
            .step_us = 5,
            .plain_step_us = 4.5,
            .peak_bytes_per_s = 4.096e9,
            .bracket_us = 0.75,
            .clock_step_us = 0.032,
            .samples = 7};
  }
};

TEST_F(PlanTimingsTest, ComeBackFromJsonAsTheyWere) {
  const Plan plan = chain();
  const PlanTimings written = timings(), read = parse_timings(to_json(written, plan), "t.json", plan);
  EXPECT_EQ(read.plan, written.plan);
  EXPECT_EQ(read.samples, 7);
  EXPECT_EQ(read.step_us, 5);
  EXPECT_EQ(read.plain_step_us, 4.5);
  EXPECT_EQ(read.peak_bytes_per_s, 4.096e9);
  ASSERT_EQ(read.nodes.size(), 3u);
  EXPECT_EQ(read.nodes[1].node, 1u);
  EXPECT_EQ(read.nodes[1].time_us, 2);
  EXPECT_EQ(read.nodes[1].span_us, 3);
  EXPECT_EQ(read.nodes[1].overlap_us, 1);
  EXPECT_EQ(read.nodes[1].start_us, 0.25);
  EXPECT_EQ(read.nodes[1].end_us, 3.25);
  EXPECT_EQ(read.nodes[1].waited_us, 2.5);
  EXPECT_FALSE(read.nodes[1].bracketed);
  EXPECT_TRUE(read.nodes[0].bracketed);
  EXPECT_EQ(read.bracket_us, 0.75);
  EXPECT_EQ(read.clock_step_us, 0.032);
}

TEST_F(PlanTimingsTest, BytesPerSecondAndTheShareOfThePeakFollowFromTheTraffic) {
  const Plan plan = chain();
  ASSERT_EQ(plan.nodes[2].traffic.bytes_read + plan.nodes[2].traffic.bytes_written, 3072u);
  EXPECT_DOUBLE_EQ(bytes_per_s(plan.nodes[2], timings().nodes[2]), 2.048e9);
  const auto json = nlohmann::json::parse(to_json(timings(), plan));
  EXPECT_EQ(json["nodes"][2]["name"], "l0.second");
  EXPECT_DOUBLE_EQ(json["nodes"][2]["share_of_peak"], 0.5);
  EXPECT_EQ(json["layers"].size(), 2u);
  EXPECT_EQ(json["layers"][1]["layer"], "l0");
  EXPECT_EQ(json["layers"][1]["nodes"], 2);
  EXPECT_DOUBLE_EQ(json["layers"][1]["time_us"], 3.5);

  PlanTimings without_peak = timings();
  without_peak.peak_bytes_per_s = 0;
  EXPECT_TRUE(nlohmann::json::parse(to_json(without_peak, plan))["nodes"][2]["share_of_peak"].is_null());
}

TEST_F(PlanTimingsTest, ThoseOfAnotherPlanAreRefusedWithBothNames) {
  const Plan plan = chain();
  const std::string written = to_json(timings(), plan);
  Plan other_name = chain(), other_node = chain(), fewer = chain();
  other_name.name = "chain.b2";
  other_node.nodes[1].name = "l0.else";
  fewer.nodes.pop_back();
  EXPECT_EQ(error_of([&] { parse_timings(written, "t.json", other_name); }),
            "cannot read timings 't.json': they are of plan 'chain.b1' (" + plan_hash(plan) + "), not of 'chain.b2' (" +
                plan_hash(other_name) + "); try: time this plan again and pass the file that is written then");
  EXPECT_NE(error_of([&] {
              parse_timings(written, "t.json", other_node);
            }).find("node 1 is 'l0.first' there and 'l0.else' in plan 'chain.b1'"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              parse_timings(written, "t.json", fewer);
            }).find("it times node 2, and plan 'chain.b1' has 2 nodes"),
            std::string::npos);
}

TEST_F(PlanTimingsTest, OfAPlanWithTheSameNamesThatRunsOtherwiseAreRefused) {
  const Plan plan = chain();
  const std::string written = to_json(timings(), plan);
  const auto spoiled = [&](const std::function<void(Plan&)>& spoil) {
    Plan other = chain();
    spoil(other);
    return error_of([&] { parse_timings(written, "t.json", other); });
  };
  EXPECT_EQ(spoiled([](Plan&) {}), "");
  EXPECT_EQ(spoiled([](Plan& other) { other.buffers[0].range.address += 4096; }), "");
  const std::function<void(Plan&)> differences[] = {
      [](Plan& other) { other.nodes[1].shape.grid[0] += 1; },
      [](Plan& other) { other.nodes[2].shape.block[0] *= 2; },
      [](Plan& other) { other.nodes[1].shape.shared_bytes = 64; },
      [](Plan& other) { other.nodes[1].shape.cluster[0] = 2; },
      [](Plan& other) { other.nodes[1].traffic.bytes_read += 1; },
      [](Plan& other) { other.nodes[2].traffic.bytes_written += 1; },
      [](Plan& other) { other.nodes[2].kernel = nullptr; },
      [](Plan& other) { other.nodes[1].attributes.priority = -1; },
      [](Plan& other) { other.nodes[1].attributes.shared_carveout_percent = 50; },
      [](Plan& other) { other.edges.back().type = EdgeType::programmatic; },
      [](Plan& other) { other.edges.pop_back(); },
  };
  for (const auto& spoil : differences) {
    Plan other = chain();
    spoil(other);
    expect_words(spoiled(spoil), {"they are of plan 'chain.b1' with hash " + plan_hash(plan),
                                  "this 'chain.b1' has hash " + plan_hash(other)});
  }
}

TEST_F(PlanTimingsTest, OfAPlanWhoseKernelsHaveOtherConstantsAreRefused) {
  Plan plan = chain(), other = chain();
  LoadedKernel of_plan = named_kernel("mix", true), of_other = of_plan;
  of_plan.request = {"mix", {{"kStages", 2}}};
  of_other.request = {"mix", {{"kStages", 3}}};
  plan.nodes[1].kernel = &of_plan;
  other.nodes[1].kernel = &of_other;
  const std::string written = to_json(timings(), plan);
  EXPECT_EQ(error_of([&] { parse_timings(written, "t.json", plan); }), "");
  expect_error([&] { parse_timings(written, "t.json", other); }, {plan_hash(plan), plan_hash(other)});
}

TEST_F(PlanTimingsTest, AFileThatIsNoneIsRefusedByWhatItLacks) {
  const Plan plan = chain();
  const auto refused = [&](const std::function<void(nlohmann::json&)>& spoil, const std::string& words) {
    auto json = nlohmann::json::parse(to_json(timings(), plan));
    spoil(json);
    EXPECT_NE(error_of([&] { parse_timings(json.dump(), "t.json", plan); }).find(words), std::string::npos) << words;
  };
  refused([](auto& json) { json = nlohmann::json::array(); }, "not a JSON object");
  refused([](auto& json) { json.erase("plan"); }, "which \"plan\"");
  refused([](auto& json) { json.erase("plan_hash"); }, "\"plan_hash\"");
  refused([](auto& json) { json["step_us"] = "5"; }, "no number \"step_us\"");
  refused([](auto& json) { json["samples"] = 0; }, "0 samples");
  refused([](auto& json) { json["samples"] = 1e300; }, "samples");
  refused([](auto& json) { json["nodes"] = 3; }, "no list \"nodes\"");
  refused([](auto& json) { json["nodes"][1] = 3; }, "entry 1 of \"nodes\" is not an object");
  refused([](auto& json) { json["nodes"][1]["node"] = -1; }, "entry 1 of \"nodes\" has no node id");
  refused([](auto& json) { json["nodes"][1].erase("name"); }, "has no \"name\"");
  refused([](auto& json) { json["nodes"][1].erase("overlap_us"); }, "no number \"overlap_us\"");
  refused([](auto& json) { json["nodes"][1].erase("bracketed"); }, "does not say if it is bracketed");
  refused([](auto& json) { json["nodes"][1]["time_us"] = -1; }, "time_us of node 'l0.first' is -1");
  refused([](auto& json) { json["nodes"][2] = json["nodes"][1]; }, "ids ascend");
  EXPECT_NE(error_of([&] { parse_timings("{\"plan\": ", "t.json", plan); }).find("not a JSON object"),
            std::string::npos);
}

TEST_F(PlanTimingsTest, TimesThatAreNoNumbersAreNotWritten) {
  const Plan plan = chain();
  PlanTimings broken = timings();
  broken.nodes[0].time_us = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(error_of([&] { to_json(broken, plan); }).find("time_us of node 'clear' is nan"), std::string::npos);
}

}  // namespace
}  // namespace nodewright
