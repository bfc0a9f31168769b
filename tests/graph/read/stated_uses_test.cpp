// What is stated of kernels that read_graph finds: the file, and what a plan says because of it.
#include <initializer_list>
#include <utility>

#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "graph/read/read_graph.h"
#include "tests/graph/read/graph_by_hand.h"

namespace nodewright {
namespace {

TEST(StatedUses, AreALineForEachKernel) {
  const auto stated = parse_uses(
      "# of a library\n"
      "\n"
      "  blend: argument 0 reads 4096, argument 1 at 16 writes,waits\n"
      "void at::fill<*, {lambda(int)#1}>(int, float*): argument 2 updates\r\n",
      "uses.txt");
  ASSERT_EQ(stated.size(), 2u);
  EXPECT_EQ(stated[0].kernel, "blend");
  EXPECT_TRUE(stated[0].waits);
  EXPECT_EQ(stated[0].source, "uses.txt:3");
  ASSERT_EQ(stated[0].uses.size(), 2u);
  EXPECT_EQ(stated[0].uses[0].access, Access::in);
  EXPECT_EQ(stated[0].uses[0].bytes, 4096u);
  EXPECT_EQ(stated[0].uses[1].argument, 1u);
  EXPECT_EQ(stated[0].uses[1].at, 16u);
  EXPECT_EQ(stated[0].uses[1].access, Access::out);
  EXPECT_EQ(stated[0].uses[1].bytes, 0u);
  EXPECT_EQ(stated[1].kernel, "void at::fill<*, {lambda(int)#1}>(int, float*)");
  EXPECT_EQ(stated[1].source, "uses.txt:4");
  EXPECT_EQ(stated[1].uses.at(0).access, Access::inout);
  EXPECT_FALSE(stated[1].waits);
}

TEST(StatedUses, AnErrorNamesTheLine) {
  for (const auto& [line, problem] : std::initializer_list<std::pair<std::string, const char*>>{
           {"blend", "names no kernel"},
           {": argument 0 reads", "names no kernel"},
           {"blend: argument 0", "is no use of an argument"},
           {"blend: argument 0 reads 1 2", "is no use of an argument"},
           {"blend: argument 0 frees", "'frees' is none of reads, writes and updates"},
           {"blend: argument 0 reads 4k", "'4k' is no number"},
           {"blend: argument -1 reads", "'-1' is no number"},
           {"blend: argument 0 reads 0", "a use of 0 bytes"},
           {"blend: argument 4294967296 reads", "'argument 4294967296': a kernel has 32764 at most"},
           {"blend: argument 0 at 3 reads", "'at 3': the place of an address is a multiple of 8 bytes"},
           {"blend: argument 0 reads,, waits", "is no use of an argument"},
       })
    expect_error([&] { parse_uses("\n" + line + "\n", "folder/uses.txt"); }, {"folder/uses.txt:2", problem});
  expect_error([] { read_uses("/nowhere/uses.txt"); }, {"/nowhere/uses.txt"});
}

TEST(StatedUses, MayHaveTabsBetweenWords) {
  const auto stated = parse_uses("blend:\targument 0\tat\t8 \treads 4096,\twaits\n", "uses.txt");
  ASSERT_EQ(stated.size(), 1u);
  EXPECT_EQ(stated[0].kernel, "blend");
  EXPECT_TRUE(stated[0].waits);
  ASSERT_EQ(stated[0].uses.size(), 1u);
  EXPECT_EQ(stated[0].uses[0].at, 8u);
  EXPECT_EQ(stated[0].uses[0].bytes, 4096u);
}

class StatedUsesTest : public GraphByHandTest {
 protected:
  // y of the struct that is the kernel's one argument, and x.
  static std::string uses(const std::string& rest = "") {
    return "accumulate: argument 0 at " + std::to_string(offsetof(Accumulate, y)) + " updates 512, argument 0 at " +
           std::to_string(offsetof(Accumulate, x)) + " reads 512" + rest;
  }
  Plan read(const GraphHandle& graph, const std::string& text) {
    return read_graph(device(), graph.get(), {.uses = parse_uses(text, "uses.txt")});
  }
};

TEST_F(StatedUsesTest, BecomeUsesAndReasonsOfEdges) {
  const GraphHandle graph = new_graph();
  const CUgraphNode first = add_accumulate(graph, y_, x_), second = add_accumulate(graph, z_, y_, {first});
  add_accumulate(graph, h_, z_, {second});
  const Plan plan = read(graph, uses());
  const PlanNode& node = plan.nodes.at(1);
  ASSERT_EQ(node.uses.size(), 2u);
  EXPECT_EQ(node.uses[0].access, Access::inout);
  EXPECT_EQ(node.uses[0].bytes, 512u);
  EXPECT_TRUE(node.read->possible.empty());
  EXPECT_EQ(node.traffic.bytes_read, 1024u);
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("after accumulate.0 (RAW y[0,512))"), std::string::npos) << text;
  EXPECT_EQ(text.find("possible"), std::string::npos) << text;
  EXPECT_EQ(order_report(plan), "");
}

// The planted fault: nothing orders the second node, which reads what the first one writes.
TEST_F(StatedUsesTest, AMissingOrderIsReported) {
  const GraphHandle graph = new_graph();
  const CUgraphNode first = add_accumulate(graph, y_, x_);
  add_accumulate(graph, z_, y_);
  add_accumulate(graph, h_, x_, {first});
  EXPECT_EQ(order_report(read(graph, "")), "");
  const Plan plan = read(graph, uses());
  const std::vector<MissingOrder> missing = missing_orders(plan);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].first_name, "accumulate.0");
  EXPECT_EQ(missing[0].second_name, "accumulate.1");
  EXPECT_EQ(missing[0].buffer, "y");
  EXPECT_EQ(missing[0].bytes, 512u);
  EXPECT_NE(order_report(plan).find("missing: 'accumulate.0' (0"), std::string::npos) << order_report(plan);
}

TEST_F(StatedUsesTest, AFullEdgeToAKernelThatWaitsCouldBeProgrammatic) {
  const GraphHandle graph = new_graph();
  const CUgraphNode first = add_accumulate(graph, y_, x_);
  add_accumulate(graph, z_, y_, {first});
  const Plan plan = read(graph, uses(", waits"));
  if (device().properties().cc_major < 9) {
    EXPECT_TRUE(edges_to_relax(plan).empty());
    return;
  }
  EXPECT_EQ(edges_to_relax(plan), std::vector<uint32_t>{0});
  EXPECT_EQ(order_report(plan), "could be programmatic: accumulate.0 -> accumulate.1\n");
}

TEST_F(StatedUsesTest, ANameMayBeAPatternAndTheFirstLineCounts) {
  const GraphHandle graph = new_graph();
  add_accumulate(graph, y_, x_);
  const std::string at = " at " + std::to_string(offsetof(Accumulate, x));
  const Plan plan = read(graph, "other: argument 7 reads\n*cumul*e: argument 0" + at + " reads\n" + uses());
  ASSERT_EQ(plan.nodes.at(0).uses.size(), 1u);
  EXPECT_EQ(plan.nodes[0].uses[0].bytes, 512u);  // to the end of the allocation
  EXPECT_EQ(plan.nodes[0].read->possible.size(), 1u);
}

TEST_F(StatedUsesTest, ThatDoNotFitTheKernelAreRefused) {
  const GraphHandle graph = new_graph();
  add_accumulate(graph, y_, x_);
  const auto refused = [&](const std::string& line, const char* problem) {
    expect_error([&] { read(graph, "\n" + line); }, {"graph, node 0", "uses.txt:2", "kernel 'accumulate'", problem});
  };
  refused("accumulate: argument 1 reads", "the kernel has 1 parameters");
  refused("accumulate: argument 32763 reads", "the kernel has 1 parameters");
  refused("accumulate: argument 0 at 18446744073709551608 reads", "the parameter has");
  refused("accumulate: argument 0 at " + std::to_string(offsetof(Accumulate, x)) + " reads 18446744073709551615",
          "ends before 18446744073709551615 bytes");
  refused("accumulate: argument 0 at 4096 reads", "the parameter has");
  expect_error([&] { read_graph(device(), graph.get(), {.uses = {{.kernel = "accumulate", .uses = {{.at = 4}}}}}); },
               {"a StatedKernel", "argument 0 at 4 of kernel 'accumulate'", "a multiple of 8 bytes"});
  refused("accumulate: argument 0 at " + std::to_string(offsetof(Accumulate, x) + 8) + " reads",
          "the driver knows no allocation at 0x80");
  refused("accumulate: argument 0 at " + std::to_string(offsetof(Accumulate, x)) + " reads 1000000000000",
          "ends before 1000000000000 bytes");
}

}  // namespace
}  // namespace nodewright
