// An argument struct whose memory lies in structs of its own: edges, dumps and refusals see its fields.
#include "graph/graph_builder.h"
#include "tests/graph/sketch.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

struct Rows {
  In<float> x;
  uint64_t first;
};
struct Gathered {
  Rows from;
  struct {
    Out<float> y;
  } to;
};

class NestedFieldsTest : public SketchTest {
 protected:
  NestedFieldsTest() { loaded_.args_bytes = sizeof(Gathered); }

  LoadedKernel loaded_ = named_kernel("gather", true);
  const Kernel<Gathered> gather_{&loaded_, mix_shape(kSketchCount)};
};

TEST_F(NestedFieldsTest, EdgesFollowFromTheirRanges) {
  GraphBuilder g(device(), "nested");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), y = buffer(g, "y");
  g.launch("one", gather_, {.from = {.x = x, .first = 0}, .to = {.y = h}});
  g.launch("two", gather_, {.from = {.x = h, .first = 0}, .to = {.y = y}});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"one~>two"});
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "RAW h[0,1024)");
  EXPECT_EQ(plan.nodes[1].fields[0].name, "from.x");
  EXPECT_EQ(plan.nodes[1].fields[2].name, "to.y");
}

TEST_F(NestedFieldsTest, AnEmptyOneIsRefusedByItsName) {
  GraphBuilder g(device(), "nested");
  const auto x = buffer(g, "x", {.live_in = true});
  expect_error([&] { g.launch("one", gather_, {.from = {.x = x, .first = 0}, .to = {}}); }, {"'one'", "to.y"});
}

}  // namespace
}  // namespace nodewright
