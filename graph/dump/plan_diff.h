// What differs between two plans, read from their JSON dumps: two buckets, before and after tuning, explicit and
// captured. Nodes, edges and buffers are the same ones where they have the same name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"

namespace nodewright {

struct Plan;

// A dump as to_json (graph/dump/graph_dump.h) wrote it. `source`, a path, is what errors call it.
struct DumpText {
  std::string_view json;  // the text
  std::string source;
};

// One property in words, `what` it is, `before` and `after`: {"grid", "4×1×1", "8×1×1"}. "none": that side lacks it.
struct Change {
  std::string what, before, after;
};

// A node, an edge or a buffer that only one plan has, or that both have and not alike.
struct ChangedItem {
  enum class How { added, removed, changed };  // added: after alone; removed: before alone; changed: in both
  How how = How::changed;                      // which of them
  std::string plan;                            // in which it lies: "" for the outermost, or "loop.body"
  std::string name;                            // of an edge "l0.out -> l0.gate_up"
  std::string layer;                           // or ""
  std::string words;                           // what it is: "kernel saxpy", "1024 B activation", "programmatic"
  std::vector<Change> changes;                 // of `changed`
  std::string line;                            // all of that: "l0.out: grid 4×1×1 -> 8×1×1"
  std::string folded_line;  // the same with its layer as *, the one before as *-1, the one after as *+1
};

// The change of one node's time in a launch, where both dumps have timings.
struct TimeChange {
  std::string name;                    // of the node
  double before_us = 0, after_us = 0;  // microseconds
};

// All that differs between two plans.
struct PlanDiff {
  std::string before, after;                       // "decode.b8 (3f2a...)"
  std::vector<Change> plan;                        // name, bucket, order of the nodes
  std::vector<ChangedItem> buffers, nodes, edges;  // that are not the same
  std::vector<Change> totals;                      // nodes, edges, bytes: they follow from the rest
  std::vector<Change> about;                       // device, model, commit and their like: no difference of the plans
  std::vector<TimeChange> times;                   // the same: by how much they differ, the largest first
  std::optional<TimeChange> step;                  // of the whole launch

  // Whether the plans are the same in all that their dumps tell; times and `about` do not count.
  bool equal() const { return plan.empty() && buffers.empty() && nodes.empty() && edges.empty(); }
};

// Throws Error (usage) naming the source that is no dump, and the entry that it lacks.
PlanDiff diff_plans(const DumpText& before, const DumpText& after);

// The same of plans at hand, such as a graph's and the one that it is to be updated to.
PlanDiff diff_plans(const Plan& before, const Plan& after);

// Sections of lines that begin with + for what only the later plan has, - for what only the earlier one has, ~ for what
// differs. Layers that differ in the same way share a line unless `full`.
std::string to_text(const PlanDiff& diff, bool full = false);

// {"before", "after", "equal", "plan", "totals", "about": [{"what", "before", "after"}], "buffers", "nodes", "edges":
// [{"how", "plan", "name", "words", "changes": [{"what", "before", "after"}]}], "step", "times": [{"name", "before_us",
// "after_us"}]}
std::string to_json(const PlanDiff& diff);

// The page of a dump (graph/dump/graph_dump.h). Throws Error as diff_plans does.
std::string to_html(const DumpText& dump);

// The page of the later plan (graph/dump/graph_dump.h), which marks what differs and lists it beside the earlier one.
// Throws Error as diff_plans does.
std::string to_html(const DumpText& before, const DumpText& after);

}  // namespace nodewright
