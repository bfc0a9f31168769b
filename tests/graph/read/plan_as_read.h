// What read_graph tells of a graph that was built of a plan, compared with that plan in all that a driver knows: kinds,
// functions, shapes, attributes, argument bytes, copies, fills and what they touch, handles, memory, bodies, and edges
// with their types.
#pragma once

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "graph/dump/plan_diff.h"
#include "graph/graph_exec.h"
#include "graph/read/read_graph.h"

namespace nodewright {

class PlanAsRead {
 public:
  explicit PlanAsRead(const ExplicitGraph& exec) : exec_(exec) {}

  // The first difference, with the node; empty when there is none. Nodes are compared in order: the CPU driver lists
  // them as they were added.
  std::string difference(Plan found) {
    Plan planned = exec_.plan();
    if (std::string problem = compare(planned, found); !problem.empty()) return problem;
    const PlanDiff diff = diff_plans(planned, found);
    return diff.equal() ? "" : to_text(diff, true);
  }

 private:
  std::string compare(Plan& planned, Plan& found) {
    if (planned.nodes.size() != found.nodes.size())
      return "'" + planned.name + "' has " + std::to_string(planned.nodes.size()) + " nodes, and " +
             std::to_string(found.nodes.size()) + " were read";
    const BuiltPlan& built = built_of(planned);
    for (size_t i = 0; i < planned.nodes.size(); ++i)
      if (touches_by_parameters(planned.nodes[i].kind) && touched(planned, i) != touched(found, i))
        return "node '" + planned.nodes[i].name + "' of '" + planned.name + "': other uses\n" + to_text(found);
    found.name = planned.name;
    found.facts = planned.facts;
    found.buffers = planned.buffers;
    found.conditions = planned.conditions;
    found.id = planned.id;
    for (size_t i = 0; i < planned.nodes.size(); ++i)
      if (std::string problem = compare(planned.nodes[i], found.nodes[i], built); !problem.empty())
        return "node '" + planned.nodes[i].name + "' of '" + planned.name + "': " + problem;
    for (Plan* plan : {&planned, &found})
      for (Edge& edge : plan->edges) {
        edge.reasons.assign(1, Reason{.hazard = Hazard::declared});
        if (edge.type == EdgeType::programmatic) plan->nodes[edge.to].waits_for_inputs = true;
      }
    return "";
  }

  static bool touches_by_parameters(NodeKind kind) {
    return kind == NodeKind::memcpy || kind == NodeKind::memset || kind == NodeKind::values;
  }

  // What a node touches, by address.
  std::set<std::tuple<std::string, uint64_t, uint64_t, Access>> touched(const Plan& plan, size_t id) const {
    std::set<std::tuple<std::string, uint64_t, uint64_t, Access>> ranges;
    for (const Use& use : plan.nodes[id].uses) {
      const uint64_t start = plan.buffers[use.buffer].range.address;
      const uint64_t address = is_allocated(start) ? exec_.memory().address_of(start) : start;
      ranges.emplace(use.field, address + use.offset, use.bytes, use.access);
    }
    return ranges;
  }

  // Makes the same of both what a driver does not tell.
  std::string compare(PlanNode& planned, PlanNode& found, const BuiltPlan& built) {
    if (planned.kind == NodeKind::library) return compare_library(planned, found, built.libraries.at(planned.id));
    if (planned.kind != found.kind) return "it is read as " + std::string(to_string(found.kind));
    const AllocatedMemory& memory = exec_.memory();
    if (planned.kind == NodeKind::kernel)
      if (std::string problem = compare_kernel(planned, found); !problem.empty()) return problem;
    if (memory.placed(planned.copy) != found.copy) return "another copy";
    if (memory.placed(planned.fill) != found.fill) return "another fill";
    if (planned.event != found.event) return "another event";
    if (planned.values != found.values) return "other values";
    if (planned.semaphore != found.semaphore) return "another semaphore";
    if (planned.allocated != 0 && memory.address_of(planned.allocated) != found.allocated) return "other memory";
    if (planned.kind == NodeKind::allocate && planned.uses[0].bytes != found.uses.at(0).bytes) return "other bytes";
    if (planned.bodies.size() != found.bodies.size()) return "another number of bodies";
    for (size_t i = 0; i < planned.bodies.size(); ++i) {
      Plan planned_body = *planned.bodies[i], found_body = *found.bodies[i];
      if (std::string problem = compare(planned_body, found_body); !problem.empty()) return problem;
      planned.bodies[i] = std::make_shared<const Plan>(std::move(planned_body));
      found.bodies[i] = std::make_shared<const Plan>(std::move(found_body));
    }
    found.read.reset();
    found.name = planned.name;
    found.layer_chars = planned.layer_chars;
    found.condition = planned.condition;
    found.patchable_inside = planned.patchable_inside;
    found.traffic = planned.traffic = {};
    found.uses = planned.uses;
    found.waits_for_inputs = planned.waits_for_inputs = false;
    return "";
  }

  std::string compare_kernel(PlanNode& planned, PlanNode& found) const {
    if (planned.kernel->function != found.kernel->function) return "another function";
    if (planned.kernel->name != found.kernel->name) return "its kernel is called " + found.kernel->name;
    if (planned.attributes.shared_carveout_percent < 0)  // what the driver calls its own choice is its own matter
      found.attributes.shared_carveout_percent = planned.attributes.shared_carveout_percent;
    std::vector<std::byte> arguments(planned.arguments.begin(), planned.arguments.end());
    exec_.memory().place_arguments(planned, arguments);
    for (const FieldInfo& field : planned.fields) {
      if (found.arguments.size() < field.offset + field.bytes) return "too few argument bytes";
      const std::byte* held = found.arguments.data() + field.offset;
      uint64_t condition = 0;
      std::memcpy(&condition, arguments.data() + field.offset, std::min(sizeof condition, field.bytes));
      if (field.role == Role::condition) {
        const uint64_t handle = condition == 0 ? 0 : exec_.condition(condition);
        if (std::memcmp(&handle, held, sizeof handle) != 0) return "another condition";
      } else if (std::memcmp(arguments.data() + field.offset, held, field.bytes) != 0) {
        return "argument '" + std::string(field.name) + "' differs";
      }
    }
    found.kernel = planned.kernel;
    found.fields = planned.fields;
    found.arguments = planned.arguments;
    return "";
  }

  // The form that the library took in the graph; the rest is the library's.
  static std::string compare_library(PlanNode& planned, PlanNode& found, const BuiltLibrary& built) {
    const NodeKind kind = built.form == LibraryForm::kernel  ? NodeKind::kernel
                          : built.form == LibraryForm::graph ? NodeKind::child
                                                             : NodeKind::host;
    if (found.kind != kind) return "its library is read as " + std::string(to_string(found.kind));
    if (kind == NodeKind::child && found.bodies[0]->nodes.size() != built.submitted.size())
      return "its library has submitted another number of nodes";
    if (kind == NodeKind::kernel && found.kernel->function != built.submitted[0].function)
      return "its library has submitted another kernel";
    found = planned;
    return "";
  }

  const BuiltPlan& built_of(const Plan& plan) const {
    for (const auto& built : exec_.built_plans())
      if (built->plan->name == plan.name) return *built;
    throw std::out_of_range("no such plan");
  }

  const ExplicitGraph& exec_;
};

}  // namespace nodewright
