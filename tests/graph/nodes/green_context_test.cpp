// Kernel nodes on the multiprocessors of a green context: what every run computes, what the driver holds and takes as
// patches, dumps, and what is refused.
#include "runtime/green_context.h"

#include "graph/dump/graph_dump.h"
#include "graph/edges/plan_hash.h"
#include "graph/patch.h"
#include "graph/read/read_graph.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class GreenContextTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n);
  std::pair<GreenContext, GreenContext> shares_ = split_multiprocessors(device(), 2);

  Plan chain(const GreenPlace& place, const std::string& name = "green") {
    GraphBuilder g(device(), name);
    declare_all(g);
    first_ = g.launch("first", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1},
                      {.attributes = {.green = place}});
    g.launch("second", machine().blend_of(n), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 2});
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  Node<Blend> first_;
};

TEST_F(GreenContextTest, TwoSharesAreTheWholeDevice) {
  const auto whole = static_cast<unsigned>(device().properties().sm_count);
  EXPECT_GE(shares_.first.multiprocessors(), 2u);
  EXPECT_EQ(shares_.first.multiprocessors() + shares_.second.multiprocessors(), whole);
  EXPECT_NE(shares_.first.place().context, shares_.second.place().context);
  expect_error([&] { split_multiprocessors(device(), whole); },
               {std::to_string(whole) + " of its " + std::to_string(whole), "ask for fewer"});
  expect_error([&] { split_multiprocessors(device(), whole + 1); }, {"cuDevSmResourceSplitByCount", "ask for fewer"});
}

TEST_F(GreenContextTest, NoneOrMoreThanThereAreAreNoShare) {
  expect_error([&] { split_multiprocessors(device(), 0); }, {"0 multiprocessors are no share"});
  expect_error([&] { split_multiprocessors(device(), ~0u); }, {"4294967295 of its"});
}

TEST_F(GreenContextTest, EveryRunComputesTheSameAndTheDriverKeepsTheContext) {
  const Plan plan = chain(shares_.first.place());
  expect_runs(plan, kAllRuns);
  ExplicitGraph exec(plan);
  const_cast<PlanNode&>(exec.plan().nodes[0]).attributes.green = shares_.second.place();
  auto differences = read_back(exec);
  ASSERT_EQ(differences.size(), 1u);
  expect_words(differences[0], {"'first'", "another context"});
  const_cast<PlanNode&>(exec.plan().nodes[0]).attributes.green = {};
  differences = read_back(exec);
  ASSERT_EQ(differences.size(), 1u);
  expect_words(differences[0], {"'first'", "another context"});
}

TEST_F(GreenContextTest, DumpsAndGraphsThatAreReadSayHowManyMultiprocessors) {
  const Plan plan = chain(shares_.first.place());
  const std::string count = std::to_string(shares_.first.multiprocessors());
  expect_words(to_text(plan), {"node 0 first | blend <4,1,1> <64,1,1> green " + count + " multiprocessors |"});
  expect_words(to_json(plan), {"\"green_multiprocessors\": " + count});
  EXPECT_NE(plan_hash(plan), plan_hash(chain({})));
  const ExplicitGraph exec(plan);
  const Plan found = read_graph(device(), exec.graph());
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].attributes.green, shares_.first.place());
  EXPECT_EQ(found.nodes[1].attributes.green, GreenPlace{});
}

TEST_F(GreenContextTest, PatchesAndUpdatesLeaveTheNodeInItsContext) {
  ExplicitGraph exec(chain(shares_.first.place()));
  HostModel reference = model();
  reset();
  exec.patch(first_, &Blend::salt, 7u);
  Plan patched = exec.plan();
  const uint32_t salt = 7;
  std::memcpy(patched.nodes[0].arguments.data() + offsetof(Blend, salt), &salt, sizeof salt);
  reference.run(patched);
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
  EXPECT_EQ(exec.update(patched).size(), 1u);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  reference.run(patched);
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
  expect_error([&] { exec.update(chain(shares_.second.place())); }, {"'first'", "green context"});
}

TEST_F(GreenContextTest, WhatCannotRunThereIsRefusedByNode) {
  GreenPlace uncounted = shares_.first.place();
  uncounted.multiprocessors = 0;
  expect_error([&] { chain(uncounted); }, {"'first'", "GreenContext::place"});
  GreenPlace whole = shares_.first.place();
  whole.context = device().context();
  expect_error([&] { chain(whole); }, {"'first'", "is the context of " + device().name() + " itself", "leave it out"});
  LoadedKernel function = *machine().blend.loaded;
  function.kernel = nullptr;
  GraphBuilder g(device(), "function");
  declare_all(g);
  expect_error(
      [&] {
        g.launch("first", Kernel<Blend>{&function, blend_shape(n)}, {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1},
                 {.attributes = {.green = shares_.first.place()}});
      },
      {"'first'", "kernel 'blend' was borrowed as a CUfunction"});
  const unsigned too_many = 33 * shares_.first.multiprocessors();
  expect_error(
      [&] {
        g.launch("wide", Kernel<Blend>{machine().blend.loaded, launch_shape_1d(too_many, 64)},
                 {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1},
                 {.attributes = {.cooperative = true, .green = shares_.first.place()}});
      },
      {"'wide'", "cooperative", "on " + std::to_string(shares_.first.multiprocessors()) + " multiprocessors at once"});
}

}  // namespace
}  // namespace nodewright
