// Dumps of one small plan are golden files, so that a changed topology or format shows in the diff. To write them anew:
// NODEWRIGHT_WRITE_GOLDEN=1.
#include "graph/dump/graph_dump.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/graph/sketch.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

class GraphDumpTest : public SketchTest {
 protected:
  Plan small_plan() {
    GraphBuilder g(device(), "small.b2", {{"bucket", "2"}});
    const auto w = buffer(g, "w", {.live_in = true}), x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h");
    const auto y = buffer(g, "y", {.live_out = true});
    g.declare({"staging", 0x900000, 1024, "input"}, {.live_in = true});
    g.copy("load", x, CopyEnd(0x900000, 1024, true), 1024);
    g.fill("clear", h.subview(128, 128), 0.0f);
    {
      const auto layer = g.scope("l0");
      g.launch("norm", waiting,
               {.left = x, .right = x.subview(0, 1), .gain = {w.data, w.count}, .y = h.subview(0, 128), .scale = 1});
      g.launch("project", waiting, {.left = h, .right = h, .gain = {w.data, 8}, .y = y, .scale = 2});
    }
    const auto layer = g.scope("l1");
    const NodeId last = g.launch("hasty", hasty, {.left = y, .right = y, .gain = {}, .y = h, .scale = 3});
    g.empty("end", {.after = {last}});
    Plan plan = std::move(g).finish(EdgePolicy::full);
    plan.edges.at(2).type = EdgeType::programmatic;  // by hand: the same on a device that has no such edges
    return plan;
  }

  static void expect_golden(const std::string& file, const std::string& text) {
    const std::filesystem::path path = test::source_dir() / "tests/golden/graph" / file;
    if (std::getenv("NODEWRIGHT_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
    std::stringstream golden;
    golden << std::ifstream(path).rdbuf();
    EXPECT_EQ(text, golden.str()) << path;
  }
};

TEST_F(GraphDumpTest, TextIsAsTheGoldenFile) { expect_golden("small.txt", to_text(small_plan())); }
TEST_F(GraphDumpTest, DotIsAsTheGoldenFile) { expect_golden("small.dot", to_dot(small_plan())); }
TEST_F(GraphDumpTest, JsonIsAsTheGoldenFile) {
  const Plan plan = small_plan();
  std::string text = to_json(plan);
  const size_t device = text.find("\"device\": \"") + 11, end = text.find('"', device);
  text.replace(device, end - device, "a device");
  expect_golden("small.json", text);
}

TEST_F(GraphDumpTest, TextOfPlansInsideANodeIsAsTheGoldenFile) {
  expect_golden("nested.txt", to_text(nested_plan(), Fold::layers));
}
TEST_F(GraphDumpTest, DotOfPlansInsideANodeIsAsTheGoldenFile) { expect_golden("nested.dot", to_dot(nested_plan())); }

TEST_F(GraphDumpTest, JsonHoldsThePlansInsideANode) {
  const auto json = nlohmann::json::parse(to_json(nested_plan()));
  const auto& node = json["nodes"][1];
  EXPECT_EQ(node["conditional"], nlohmann::json::parse(R"({"type": "if", "default_value": 1,
                                                            "reset_each_launch": true})"));
  ASSERT_EQ(node["bodies"].size(), 2u);
  EXPECT_EQ(node["bodies"][0]["name"], "nested.b1/choose.then");
  EXPECT_EQ(node["bodies"][0]["nodes"].size(), 4u);
  EXPECT_EQ(node["bodies"][1]["nodes"][0]["fill"]["count"], 256);
  EXPECT_FALSE(json["nodes"][0].contains("bodies"));
}

TEST_F(GraphDumpTest, AttributesShowWhereTheyAreSet) {
  Plan plan = small_plan();
  plan.nodes[2].attributes = {.cluster = {2, 1, 1}, .cooperative = true, .priority = -3, .shared_carveout_percent = 50};
  EXPECT_NE(to_text(plan).find("<64,1,1> cluster 2,1,1 cooperative priority -3 carveout 50 % |"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["nodes"][2]["attributes"],
            nlohmann::json::parse(R"({"cluster": [2, 1, 1], "cooperative": true, "priority": -3,
                                      "shared_carveout_percent": 50})"));
  EXPECT_FALSE(json["nodes"][3].contains("attributes"));
}

TEST_F(GraphDumpTest, JsonNamesEveryNodeEdgeAndBufferOfThePlan) {
  const Plan plan = small_plan();
  const auto json = nlohmann::json::parse(to_json(plan));
  ASSERT_EQ(json["nodes"].size(), plan.nodes.size());
  ASSERT_EQ(json["edges"].size(), plan.edges.size());
  ASSERT_EQ(json["buffers"].size(), plan.buffers.size());
  EXPECT_EQ(json["facts"]["bucket"], "2");
  EXPECT_EQ(json["nodes"][2]["name"], "l0.norm");
  EXPECT_EQ(json["nodes"][2]["uses"][2]["access"], "frozen");
  EXPECT_EQ(json["edges"][0]["reasons"][0], "RAW x[0,1024)");
}

}  // namespace
}  // namespace nodewright
