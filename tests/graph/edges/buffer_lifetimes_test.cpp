// A buffer is needed from its first user to its last, and beyond where the outside holds or reads its value.
#include "graph/edges/buffer_lifetimes.h"

#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class BufferLifetimesTest : public SketchTest {
 protected:
  // a: x -> h, b: h -> k, c: k -> y; 1024 bytes each.
  Plan chain() {
    GraphBuilder g(device(), "chain.b1", {{"bucket", "1"}});
    const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), k = buffer(g, "k");
    const auto y = buffer(g, "y", {.live_out = true});
    buffer(g, "spare");
    g.launch("a", waiting, {.left = x, .right = x, .y = h, .scale = 1});
    g.launch("b", waiting, {.left = h, .right = h, .y = k, .scale = 1});
    g.launch("c", waiting, {.left = k, .right = k, .y = y, .scale = 1});
    return std::move(g).finish(EdgePolicy::full);
  }

  static std::string words_of(const Plan& plan) {
    std::string words;
    const auto lifetimes = buffer_lifetimes(plan);
    for (size_t id = 0; id < lifetimes.size(); ++id) {
      words += (words.empty() ? "" : " ") + plan.buffers[id].range.name;
      words += lifetimes[id] ? std::to_string(lifetimes[id]->first) + std::to_string(lifetimes[id]->last) : "-";
    }
    return words;
  }
};

TEST_F(BufferLifetimesTest, ReachFromTheFirstUserToTheLastAndToTheOutside) {
  Plan plan = chain();
  EXPECT_EQ(words_of(plan), "x00 h01 k12 y22 spare-");
  plan.buffers[0].live_out = true;
  plan.buffers[2].live_in = true;
  EXPECT_EQ(words_of(plan), "x02 h01 k02 y22 spare-");
}

TEST_F(BufferLifetimesTest, ThePeakIsWhereMostBytesAreNeededAtOnce) {
  Plan plan = chain();
  EXPECT_EQ(memory_peak(plan).bytes, 2048u);  // x and h, then h and k, then k and y
  EXPECT_EQ(memory_peak(plan).node, 0u);
  plan.buffers[3].range.bytes = 4096;
  EXPECT_EQ(memory_peak(plan).bytes, 5120u);
  EXPECT_EQ(memory_peak(plan).node, 2u);
  EXPECT_EQ(memory_peak(Plan{}).bytes, 0u);
}

TEST_F(BufferLifetimesTest, ConditionsAreNoMemory) {
  const Plan plan = nested_plan();
  EXPECT_EQ(memory_peak(plan).bytes, 2048u);  // x and y
}

}  // namespace
}  // namespace nodewright
