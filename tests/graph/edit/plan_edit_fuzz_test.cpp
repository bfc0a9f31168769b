// Random edits of random plans: an edited plan runs as its nodes one after the other, a plan that is made again without
// edits is the same, and an insertion that is taken back leaves no trace.
#include <set>

#include "graph/dump/graph_dump.h"
#include "graph/edit/plan_edit.h"
#include "graph/graph_exec.h"
#include "tests/graph/plan_fuzz_fixture.h"

namespace nodewright {
namespace {

class PlanFuzzEditTest : public PlanFuzzTest {
 protected:
  // The nodes of a plan, and of those inside it, by the names that edits take.
  static void collect_paths(const Plan& plan, const std::string& path, std::vector<std::string>& paths) {
    for (const PlanNode& node : plan.nodes) {
      paths.push_back(path + node.name);
      for (size_t i = 0; i < node.bodies.size(); ++i)
        collect_paths(*node.bodies[i],
                      node.kind == NodeKind::child ? path + node.name + "/"
                                                   : path + node.name + "." + body_name(node.conditional, i) + "/",
                      paths);
    }
  }
  static std::vector<std::string> paths_of(const Plan& plan) {
    std::vector<std::string> paths;
    collect_paths(plan, "", paths);
    return paths;
  }
  static bool has_child(const Plan& plan) {
    return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& node) {
      return node.kind == NodeKind::child ||
             std::any_of(node.bodies.begin(), node.bodies.end(), [](const auto& body) { return has_child(*body); });
    });
  }
  // Its nodes, uses and edges: a body keeps buffers that an edit has declared.
  static std::string work_of(const Plan& plan) {
    std::string text;
    for (const PlanNode& node : plan.nodes) {
      text += node.name + ":";
      for (const Use& use : node.uses) text += " " + describe_range(plan, use.buffer, use.offset, use.bytes);
      for (const auto& body : node.bodies) text += " {" + work_of(*body) + "}";
    }
    for (const Edge& edge : plan.edges) {
      text += " " + std::to_string(edge.from) + ">" + std::to_string(edge.to);
      for (const Reason& reason : edge.reasons) text += " " + describe(plan, reason);
    }
    return text;
  }
  static bool is_made_again(const Plan& plan) {
    for (const EdgePolicy policy : {EdgePolicy::programmatic, EdgePolicy::full})
      if (to_json(PlanEdit(plan).finish(policy)) == to_json(plan)) return true;
    return false;
  }

  // Adds a fill of a random piece.
  PlanEdit::Nodes fill_of(std::mt19937& random, std::string name) {
    const View<uint32_t> whole = memory_.device[random() % memory_.device.size()];
    const uint64_t first = random() % whole.count, count = 1 + random() % (whole.count - first);
    return [name = std::move(name), piece = whole.subview(first, count),
            value = static_cast<uint32_t>(random())](GraphBuilder& g) { g.fill(name, piece, value); };
  }
};

TEST_F(PlanFuzzEditTest, RandomEditsOfRandomPlansRunAsTheirNodesOneAfterTheOther) {
  size_t edited = 0, refused = 0;
  for (unsigned i = 0; i < plans() / 4; ++i) {
    const unsigned seed = first_seed() + i;
    std::mt19937 random(seed);
    RandomPlanMaker maker = maker_of(seed);
    const Plan plan = maker.make();
    const std::vector<std::string> paths = paths_of(plan);
    std::string problem, story;
    try {
      if (!is_made_again(plan)) problem = "without edits the plan became another";
      PlanEdit edit(plan), inserting(plan);
      std::set<std::string> gone;
      std::vector<std::string> inserted;
      for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
        const std::string& path = paths[random() % paths.size()];
        const std::string name = "edit" + std::to_string(edits);
        const uint32_t what = random() % 4;
        story += std::to_string(what) + " at " + path + "\n";
        const PlanEdit::Nodes nodes = fill_of(random, name);
        if (what == 0) {
          edit.insert_before(path, nodes);
          inserting.insert_before(path, nodes);
        } else if (what == 1) {
          edit.insert_after(path, nodes);
          inserting.insert_after(path, nodes);
        } else if (gone.insert(path).second) {
          if (what == 2) edit.replace(path, nodes);
          if (what == 3) edit.remove(path);
        }
        if (what < 2) inserted.push_back(path.substr(0, path.rfind('/') + 1) + name);
      }
      try {
        const Plan changed = edit.finish(i % 2 == 0 ? EdgePolicy::full : EdgePolicy::programmatic);
        ++edited;
        for (const PlanNode& node : plan.nodes)
          if (!gone.contains(node.name) && changed.nodes[edit.handle(NodeId{node.id, plan.id}).index].name != node.name)
            problem = "the handle of " + node.name + " names another node";
        if (problem.empty()) problem = run_difference(changed, maker, RunMode::explicit_, 2);
      } catch (const Error& error) {  // a scratch or a condition that lost its node
        if (gone.empty()) throw;
        ++refused;
        story += error.what() + std::string("\n");
      }
      PlanEdit back(inserting.finish(EdgePolicy::full));
      for (const std::string& name : inserted) back.remove(name);
      // A child that is edited gets the policy of finish, and one that is not keeps its own.
      const bool in_child = std::any_of(inserted.begin(), inserted.end(), [&](const std::string& name) {
        return name.find('/') != std::string::npos && has_child(plan);
      });
      if (problem.empty() && !in_child &&
          work_of(back.finish(EdgePolicy::full)) != work_of(PlanEdit(plan).finish(EdgePolicy::full)))
        problem = "an insertion that was taken back left a trace";
    } catch (const std::exception& error) {
      problem = error.what();
    }
    ASSERT_EQ(problem, "") << "NODEWRIGHT_FUZZ_SEED=" << seed << " NODEWRIGHT_FUZZ_PLANS=4; with the same schedule: "
                           << "NODEWRIGHT_FUZZ_SEED=" << first_seed() << " NODEWRIGHT_FUZZ_PLANS=" << 4 * i + 4 << "\n"
                           << story << to_text(plan);
  }
  EXPECT_GT(edited, plans() / 8) << "refused: " << refused;
}

}  // namespace
}  // namespace nodewright
