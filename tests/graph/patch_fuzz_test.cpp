// Random patches of random plans, some of them refused by the driver: what a launch computes is what the model makes of
// the plan with the same changes, and of the plan as it was where a set was refused.
#include <algorithm>

#include "graph/dump/graph_dump.h"
#include "graph/patch.h"
#include "tests/graph/plan_fuzz_fixture.h"

namespace nodewright {
namespace {

// A node of a plan or of one inside it, in a copy that may be changed.
struct ChangeableNode {
  PlanNode* node = nullptr;
  const Plan* plan = nullptr;  // that it is in
  bool cloned = false;         // inside a cloned child

  NodeId id() const { return {node->id, plan->id}; }
};

void make_changeable(Plan& plan, bool cloned, std::vector<ChangeableNode>& nodes) {
  for (PlanNode& node : plan.nodes) {
    nodes.push_back({&node, &plan, cloned});
    for (auto& body : node.bodies) {
      const auto copy = std::make_shared<Plan>(*body);
      body = copy;
      make_changeable(*copy, cloned || (node.kind == NodeKind::child && !node.patchable_inside), nodes);
    }
  }
}

class PatchFuzzTest : public PlanFuzzTest {
 protected:
  struct Piece {
    uint64_t address = 0, bytes = 0;
    View<uint32_t> words() const { return {reinterpret_cast<uint32_t*>(address), bytes / sizeof(uint32_t)}; }
  };

  uint32_t below(uint64_t limit) { return static_cast<uint32_t>(random_() % limit); }

  // A random part, in whole words where the use is, of what the node may use as `field`.
  Piece part_of(const ChangeableNode& at, std::string_view field, uint64_t unit) {
    for (const Use& use : at.node->uses) {
      if (use.field != field) continue;
      const uint64_t units = use.bytes / unit, first = below(units), count = 1 + below(units - first);
      return {at.plan->buffers[use.buffer].range.address + use.offset + first * unit, count * unit};
    }
    throw std::logic_error("no such use");
  }

  template <class Args, class Change>
  void change_arguments(const ChangeableNode& at, const Change& change) {
    Args args;
    std::memcpy(&args, at.node->arguments.data(), sizeof args);
    change(args);
    std::memcpy(at.node->arguments.data(), &args, sizeof args);
  }

  template <class Args, class Field, class Value>
  void set(PatchSet& patches, const ChangeableNode& at, Field Args::*field, const Value& value) {
    patches.set(Node<Args>{at.id()}, field, value);
    change_arguments<Args>(at, [&](Args& args) { args.*field = value; });
    note(at, "an argument");
  }

  // What was changed, for the report of a failure.
  void note(const ChangeableNode& at, std::string_view what) {
    story_ += "  " + at.node->name + ": " + std::string(what) + "\n";
  }

  void change_shape(PatchSet& patches, const ChangeableNode& at) {
    const LaunchShape shape = launch_shape_1d(1 + below(3), kBlendThreads);
    patches.shape(at.id(), shape);
    at.node->shape = shape;
    note(at, "the shape");
  }

  template <FixedName kName, class Value>
  void set_foreign(PatchSet& patches, const ChangeableNode& at, const Value& value) {
    constexpr size_t index = ForeignBlendNode::index_of<kName>();
    patches.set<kName>(ForeignBlendNode{at.id()}, value);
    const auto passed = ForeignBlendNode::Argument<index>::passed(value);
    std::memcpy(at.node->arguments.data() + at.node->fields[index].offset, &passed, sizeof passed);
    note(at, "an argument of a foreign kernel");
  }

  // Another factor: of the kernel that counts by 31, and of one that is compiled for each.
  void change_factor(PatchSet& patches, const ChangeableNode& at) {
    const Kernel<Accumulate> kernel =
        below(3) == 0 ? machine().accumulate : machine().scaled_by(static_cast<int>(5 + 2 * below(2)));
    const Kernel<Accumulate> shaped{kernel.loaded, launch_shape_1d(1 + below(3), kBlendThreads)};
    patches.kernel(Node<Accumulate>{at.id()}, shaped);
    at.node->kernel = shaped.loaded;
    at.node->shape = shaped.shape;
    note(at, "the kernel");
  }

  void change_foreign_kernel(PatchSet& patches, const ChangeableNode& at) {
    const ForeignKernel& kernel = below(2) == 0 ? *machine().foreign : *machine().foreign_other;
    patches.kernel(ForeignBlendNode{at.id()}, kernel, at.node->shape, at.node->waits_for_inputs);
    at.node->kernel = &kernel.loaded();
    note(at, "the foreign kernel");
  }

  void change_foreign(PatchSet& patches, const ChangeableNode& at, uint32_t what) {
    if (below(4) == 0) return change_foreign_kernel(patches, at);
    if (what == 0) return set_foreign<"salt">(patches, at, below(1000));
    if (what == 1) return set_foreign<"key">(patches, at, part_of(at, "key", 4).words());
    if (what == 2) return set_foreign<"0">(patches, at, static_cast<uint8_t>(below(8)));
    set_foreign<"a">(patches, at, foreign_source(part_of(at, "a.words", 4).words()));
  }

  void change_kernel(PatchSet& patches, const ChangeableNode& at) {
    const uint32_t what = below(4);
    if (at.node->kernel_name() == "decide") {
      if (what % 2 == 0) return set(patches, at, &Decide::modulus, 1 + below(4));
      return set(patches, at, &Decide::base, below(3));
    }
    if (at.node->kernel_name().starts_with("foreign_")) return change_foreign(patches, at, what);
    if (at.node->kernel_name() == "count") return set(patches, at, &Count::limit, below(5));
    if (at.node->kernel_name() == "accumulate" || at.node->kernel_name() == "scaled") {
      if (below(4) == 0) return change_factor(patches, at);
      if (what == 0) return change_shape(patches, at);
      if (what == 1) return set(patches, at, &Accumulate::x, part_of(at, "x", 4).words());
      if (what == 2) return set(patches, at, &Accumulate::y, part_of(at, "y", 4).words());
      return set(patches, at, &Accumulate::salt, below(1000));
    }
    if (what == 0) return change_shape(patches, at);
    if (what == 1) return set(patches, at, &Blend::a, part_of(at, "a", 4).words());
    if (what == 2) return set(patches, at, &Blend::y, part_of(at, "y", 4).words());
    return set(patches, at, &Blend::salt, below(1000));
  }

  // A change of the node, in the set and in the copy; false for a node that has nothing to change.
  bool change(PatchSet& patches, const ChangeableNode& at, std::set<std::string, std::less<>>& off) {
    PlanNode& node = *at.node;
    if (node.kind != NodeKind::kernel && node.kind != NodeKind::memcpy && node.kind != NodeKind::memset) return false;
    if (node.name == "scratch.in") return false;  // without it the plan's own memory holds anything
    const bool early = std::any_of(at.plan->edges.begin(), at.plan->edges.end(), [&](const Edge& edge) {
      return edge.to == node.id && edge.type == EdgeType::programmatic;
    });
    if (below(3) == 0 && node.kernel_name() != "count" && !early) {  // a loop needs its count
      const bool on = off.contains(node.name);
      patches.enable(at.id(), on);
      note(at, on ? "on" : "off");
      if (on)
        off.erase(node.name);
      else
        off.insert(node.name);
    } else if (node.kind == NodeKind::kernel) {
      change_kernel(patches, at);
    } else if (node.kind == NodeKind::memset) {
      node.fill.value = below(node.fill.element_bytes == 4 ? 1u << 31 : 1u << (8 * node.fill.element_bytes));
      patches.fill(FillNode{at.id()}, node.fill.value);
      note(at, "the value");
    } else if (node.copy.rows == 1 && !is_allocated(node.copy.to) && !is_allocated(node.copy.from)) {
      const Piece to = part_of(at, "to", 4), from = part_of(at, "from", 4);
      node.copy.to = to.address;
      node.copy.from = from.address;
      node.copy.bytes = std::min(to.bytes, from.bytes);
      patches.copy(CopyNode{at.id()}, {to.address, to.bytes, node.copy.to_host},
                   {from.address, from.bytes, node.copy.from_host}, node.copy.bytes);
      note(at, "to " + std::to_string(node.copy.bytes) + " bytes");
    } else {
      return false;
    }
    return true;
  }

  // An update to the plan as it is now, which switches every node on, unless a graph cannot be updated to it. Empty
  // when the driver holds the plan then.
  std::string update(ExplicitGraph& exec, const Plan& plan, HostModel& reference) {
    const bool fixed = std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& node) {
      return node.kind == NodeKind::allocate || node.kind == NodeKind::conditional;
    });
    if (fixed) return "";
    story_ += "updated\n";
    try {
      exec.update(plan);
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("was switched off since the graph was built or last updated") ==
          std::string::npos)
        throw;
      story_ += "no, a node was off\n";
      return "";
    }
    reference.off.clear();
    ++updates_;
    const std::vector<std::string> differences = read_back(exec);
    return differences.empty() ? "" : differences[0];
  }

  // One set of changes, made or refused, and a launch after it. Empty when all is as it should be.
  std::string patch_and_launch(ExplicitGraph& exec, Plan& plan, HostModel& reference, bool refuse) {
    const Plan before = plan;  // shares the plans inside, which are copied below
    std::vector<ChangeableNode> nodes;
    make_changeable(plan, false, nodes);
    const auto off_before = reference.off;
    story_ += refuse ? "refused:\n" : "made:\n";
    PatchSet patches(exec);
    for (uint32_t tries = 1 + below(6); tries > 0 && !nodes.empty(); --tries) {
      const ChangeableNode& at = nodes[below(nodes.size())];
      if (at.cloned) {
        const bool refused = !error_of([&] { patches.enable(at.id(), false); }).empty();
        if (!refused) return "a patch inside a cloned child was taken";
        continue;
      }
      change(patches, at, reference.off);
    }
    if (patches.size() != 0 && refuse) {
      interposer().fail_call(below(patches.size()), CUDA_ERROR_INVALID_VALUE);
      const std::string message = error_of([&] { patches.apply(); });
      interposer().fail_none();
      if (message.find("were undone") == std::string::npos) return "a failing call was not reported: " + message;
      plan = before;
      reference.off = off_before;
    } else {
      patches.apply();
    }
    exec.launch(stream_);
    reference.run(plan);
    return difference(reference);
  }

  std::mt19937 random_;
  std::string story_;
  size_t updates_ = 0;
};

TEST_F(PatchFuzzTest, RandomSetsOfPatchesDoAllThatTheySayOrNothing) {
  for (unsigned i = 0; i < plans() / 2; ++i) {
    const unsigned seed = first_seed() + i;
    random_.seed(seed);
    story_.clear();
    RandomPlanMaker maker(machine(), memory_, seed);
    Plan plan = maker.make();
    std::string problem;
    try {
      reset();
      HostModel reference = model();
      reference.host_functions = maker.host_functions;
      ExplicitGraph exec(plan);
      for (int round = 0; round < 4 && problem.empty(); ++round) {
        if (below(3) == 0) problem = update(exec, plan, reference);
        if (problem.empty()) problem = patch_and_launch(exec, plan, reference, round % 2 == 1);
      }
    } catch (const std::exception& error) {
      interposer().fail_none();
      problem = error.what();
    }
    ASSERT_EQ(problem, "") << "NODEWRIGHT_FUZZ_SEED=" << seed << " NODEWRIGHT_FUZZ_PLANS=2; with the same schedule: "
                           << "NODEWRIGHT_FUZZ_SEED=" << first_seed() << " NODEWRIGHT_FUZZ_PLANS=" << 2 * i + 2 << "\n"
                           << story_ << to_text(plan);
  }
  EXPECT_GE(updates_, plans() / 50) << "the generator has lost its updates";
}

}  // namespace
}  // namespace nodewright
