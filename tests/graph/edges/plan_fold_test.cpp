// Layers that are the same block fold; a difference in anything that a dump shows keeps them apart.
#include "graph/edges/plan_fold.h"

#include <algorithm>
#include <functional>

#include "graph/dump/graph_dump.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class PlanFoldTest : public SketchTest {
 protected:
  // load, then `layers` layers of norm, project and clear over `state`, each with a weight and a cache of its own, then
  // an end.
  Plan layered(int layers) {
    GraphBuilder g(device(), "layered.b1", {{"bucket", "1"}});
    const auto x = buffer(g, "x", {.live_in = true}), state = buffer(g, "state"), h = buffer(g, "h");
    const auto y = buffer(g, "y", {.live_out = true});
    g.launch("load", waiting, {.left = x, .right = x, .gain = {}, .y = state, .scale = 1});
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "l" + std::to_string(i);
      const auto weight = buffer(g, layer + ".weight", {.live_in = true});
      const auto cache = buffer(g, "cache." + layer, {.live_in = true, .live_out = true});
      const auto scope = g.scope(layer);
      g.launch("norm", waiting, {.left = state, .right = cache, .gain = {weight.data, 8}, .y = h, .scale = 0.5f});
      g.launch("project", waiting, {.left = h, .right = h, .gain = {weight.data, 16}, .y = state, .scale = 2});
      g.fill("clear", cache, 0.0f);
    }
    g.launch("end", waiting, {.left = state, .right = state, .gain = {}, .y = y, .scale = 1});
    return std::move(g).finish(EdgePolicy::full);
  }

  // Each layer reads a gain of the next one, the last one a gain of the end.
  Plan gained(int layers, int odd = -1) {
    GraphBuilder g(device(), "gained.b1", {{"bucket", "1"}});
    const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y", {.live_out = true});
    std::vector<View<float>> gains;
    for (int i = 0; i < layers; ++i) gains.push_back(buffer(g, "l" + std::to_string(i) + ".gain", {.live_in = true}));
    gains.push_back(buffer(g, "end.gain", {.live_in = true}));
    for (int i = 0; i < layers; ++i) {
      const auto scope = g.scope("l" + std::to_string(i));
      const auto& gain = gains.at(static_cast<size_t>(i == odd ? i : i + 1));
      g.launch("project", waiting, {.left = x, .right = x, .gain = {gain.data, 16}, .y = y, .scale = 2});
    }
    return std::move(g).finish(EdgePolicy::full);
  }

  // "load l0..l4 end"; a run of one block is its layer or its node's name.
  static std::string words_of(const Plan& plan) {
    std::string words;
    for (const BlockRun& run : fold_layers(plan)) {
      const LayerBlock &first = run.blocks.front(), &last = run.blocks.back();
      words += words.empty() ? "" : " ";
      words += first.layer.empty() ? plan.nodes[first.first].name : first.layer;
      if (run.blocks.size() > 1) words += ".." + last.layer;
    }
    return words;
  }

  static Edge& edge(Plan& plan, const std::string& from, const std::string& to) {
    for (Edge& candidate : plan.edges)
      if (plan.nodes[candidate.from].name == from && plan.nodes[candidate.to].name == to) return candidate;
    throw std::out_of_range("no edge " + from + " -> " + to);
  }
};

TEST_F(PlanFoldTest, LayersThatDifferInTheirOwnNameOnlyAreOneRun) {
  const Plan plan = layered(5);
  EXPECT_EQ(words_of(plan), "load l0..l4 end");
  const std::vector<BlockRun> runs = fold_layers(plan);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].blocks[2].layer, "l2");
  EXPECT_EQ(runs[1].blocks[2].first, 7u);
  EXPECT_EQ(runs[1].blocks[2].count, 3u);
}

TEST_F(PlanFoldTest, RunsCoverEveryNodeOnceAndInOrder) {
  for (const int layers : {0, 1, 2, 7}) {
    const Plan plan = layered(layers);
    uint32_t next = 0;
    for (const BlockRun& run : fold_layers(plan))
      for (const LayerBlock& block : run.blocks) {
        EXPECT_EQ(block.first, next);
        next += block.count;
      }
    EXPECT_EQ(next, plan.nodes.size());
  }
  EXPECT_TRUE(fold_layers(Plan{}).empty());
}

// One difference in l2 of l0 to l4, each in a plan of its own.
TEST_F(PlanFoldTest, ADifferenceInOneLayerKeepsItApart) {
  const auto expect_apart = [&](const char* what, const std::function<void(Plan&)>& change,
                                const std::string& expected = "load l0..l1 l2 l3..l4 end") {
    Plan plan = layered(5);
    change(plan);
    EXPECT_EQ(words_of(plan), expected) << what;
  };
  const auto norm = [](Plan& plan) -> PlanNode& { return plan.nodes.at(7); };
  ASSERT_EQ(layered(5).nodes.at(7).name, "l2.norm");
  expect_apart("name", [&](Plan& plan) { norm(plan).name = "l2.other"; });
  expect_apart("kernel", [&](Plan& plan) { norm(plan).kernel = hasty.loaded; });
  expect_apart("waits", [&](Plan& plan) { norm(plan).waits_for_inputs = false; });
  expect_apart("grid", [&](Plan& plan) { norm(plan).shape.grid[1] = 2; });
  expect_apart("attributes", [&](Plan& plan) { norm(plan).attributes.priority = -1; });
  expect_apart("rows of a fill", [&](Plan& plan) { plan.nodes.at(9).fill.rows = 2; });
  expect_apart("shared", [&](Plan& plan) { norm(plan).shape.shared_bytes = 16; });
  expect_apart("traffic", [&](Plan& plan) { norm(plan).traffic.bytes_read += 4; });
  expect_apart("scalar", [&](Plan& plan) { norm(plan).arguments.at(offsetof(Mix, scale) + 3) ^= std::byte{1}; });

  FieldInfo fields[2][5];  // of Mix
  const auto copy_fields = [&](Plan& plan, FieldInfo* copy) {
    std::ranges::copy(norm(plan).fields, copy);
    norm(plan).fields = {copy, 5};
  };
  expect_apart("field's name", [&](Plan& plan) {
    copy_fields(plan, fields[0]);
    fields[0][4].name = "other";
  });
  expect_apart("field's role", [&](Plan& plan) {
    copy_fields(plan, fields[1]);
    fields[1][0].role = Role::in_out;
  });
  expect_apart("use's range", [&](Plan& plan) { norm(plan).uses.at(2).bytes += 4; });
  expect_apart("use's access", [&](Plan& plan) { norm(plan).uses.at(2).access = Access::in; });
  expect_apart("use's buffer", [&](Plan& plan) { norm(plan).uses.at(2).buffer = norm(plan).uses.at(1).buffer; });
  expect_apart("buffer's bytes", [&](Plan& plan) { plan.buffers.at(norm(plan).uses.at(2).buffer).range.bytes += 4; });
  expect_apart("buffer's name",
               [&](Plan& plan) { plan.buffers.at(norm(plan).uses.at(2).buffer).range.name = "l1.weight.b"; });
  expect_apart("buffer's liveness", [&](Plan& plan) { plan.buffers.at(norm(plan).uses.at(2).buffer).live_out = true; });
  expect_apart("fill", [&](Plan& plan) { plan.nodes.at(9).fill.value = 1; });
  expect_apart("edge's type within",
               [&](Plan& plan) { edge(plan, "l2.norm", "l2.project").type = EdgeType::programmatic; });
  expect_apart("reason", [&](Plan& plan) { edge(plan, "l2.norm", "l2.project").reasons.at(0).hazard = Hazard::waw; });
  expect_apart("no edge", [&](Plan& plan) { std::erase_if(plan.edges, [](const Edge& e) { return e.to == 8; }); });

  // What differs outside a block begins a run: its first block's joint does not count.
  const std::string begun = "load l0..l1 l2..l4 end";
  expect_apart(
      "edge's type into", [&](Plan& plan) { edge(plan, "l1.project", "l2.norm").type = EdgeType::programmatic; },
      begun);
  expect_apart(
      "source of an edge", [&](Plan& plan) { edge(plan, "l1.project", "l2.norm").from = 4; }, begun);
}

TEST_F(PlanFoldTest, ABufferOfTheNextLayerIsAsGoodAsOneOfItsOwn) {
  EXPECT_EQ(words_of(gained(5)), "l0..l3 l4");
  EXPECT_EQ(words_of(gained(5, 2)), "l0..l1 l2 l3 l4");
}

TEST_F(PlanFoldTest, EdgesThatEnterTheFirstLayerFromOutsideDoNotCount) {
  Plan plan = layered(3);
  ASSERT_NE(edge(plan, "load", "l0.norm").reasons, edge(plan, "l0.project", "l1.norm").reasons);
  EXPECT_EQ(words_of(plan), "load l0..l2 end");
  edge(plan, "l1.project", "l2.norm").from = 0;  // of a later layer it does
  EXPECT_EQ(words_of(plan), "load l0..l1 l2 end");
}

TEST_F(PlanFoldTest, AddressesDoNotCount) {
  Plan plan = layered(3);
  plan.buffers.at(plan.nodes.at(4).uses.at(2).buffer).range.address += 64;
  plan.nodes.at(4).arguments.at(offsetof(Mix, gain)) ^= std::byte{64};
  EXPECT_EQ(words_of(plan), "load l0..l2 end");
}

TEST_F(PlanFoldTest, TheLayersOwnNameIsAWholePartBetweenDots) {
  EXPECT_EQ(replace_layer("l3.qkv", "l3", "l14"), "l14.qkv");
  EXPECT_EQ(replace_layer("kv.l3", "l3", "l14"), "kv.l14");
  EXPECT_EQ(replace_layer("l30.l3x.xl3", "l3", "l14"), "l30.l3x.xl3");
  EXPECT_EQ(replace_layer("l3", "l3", "l14"), "l14");
  EXPECT_EQ(replace_layer("l3..l3.", "l3", "m"), "m..m.");
  EXPECT_EQ(replace_layer("", "l3", "l14"), "");
}

TEST_F(PlanFoldTest, FoldedTextShowsTheFirstLayerAndCountsTheOthers) {
  const Plan plan = layered(5);
  const std::string text = to_text(plan, Fold::layers);
  EXPECT_NE(text.find("\nnode 3 l0.clear "), std::string::npos) << text;
  EXPECT_NE(
      text.find(
          "\n4 × same block: l1 .. l4 | nodes 4 to 15 | l1.norm after l0.project (RAW state[0,1024), WAR h[0,1024))\n"
          "node 16 end "),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("\nnode 4 "), std::string::npos);
  EXPECT_NE(text.find("\nbuffer l0.weight 1024 B activation live-in, 4 × the same: l1 .. l4\n"), std::string::npos);
  EXPECT_NE(text.find("\nbuffer cache.l0 1024 B activation live-in live-out, 4 × the same: l1 .. l4\n"),
            std::string::npos);
  EXPECT_EQ(text.find("\nbuffer cache.l1 "), std::string::npos);
  EXPECT_NE(text.find("\nbuffer h 1024 B activation\n"), std::string::npos);
}

TEST_F(PlanFoldTest, TextWithoutFoldingShowsEveryNodeAndBuffer) {
  const Plan plan = layered(5);
  const std::string text = to_text(plan);
  EXPECT_EQ(text.find("same"), std::string::npos);
  for (const PlanNode& node : plan.nodes) EXPECT_NE(text.find(" " + node.name + " |"), std::string::npos) << node.name;
  for (const Buffer& buffer : plan.buffers)
    EXPECT_NE(text.find("\nbuffer " + buffer.range.name + " "), std::string::npos) << buffer.range.name;
}

}  // namespace
}  // namespace nodewright
