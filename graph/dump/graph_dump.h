// A plan as text for people, DOT for drawings, JSON for programs and HTML for browsers. The same plan gives the same
// bytes, wherever its buffers happen to lie: no address is printed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/node.h"
#include "graph/timing/plan_timings.h"

namespace nodewright {

// none: every layer is shown. layers: of layers that are the same block (graph/edges/plan_fold.h) only the first is
// shown.
enum class Fold : uint8_t { none, layers };

// A summary, the buffers, then one line a node: shape, kernel, uses (<in, >out, <>inout, =frozen, <~ in or inout that
// may be read before the wait, >>packets for another device, <<packets from another, ?where an argument of a read graph
// points, to the end of the buffer), and what it follows.
// A plan inside a node stands below the node, indented, with the buffers that the outer plan does not know.
// Folded, a line "15 × same block: l1 .. l15" stands for the layers left out and says what the first of them follows; a
// buffer that each of them has under its own name is shown once.
std::string to_text(const Plan& plan, Fold fold = Fold::none);

// One cluster a layer and a plan inside a node; solid edges are full, dashed ones programmatic; labels are the reasons.
std::string to_dot(const Plan& plan);

// {"name", "facts", "hash" (graph/edges/plan_hash.h), "peak": {"bytes", "node"}, "kept": [name of an object] where the
// plan keeps some, "read": true of a graph that was built elsewhere, "buffers": [{"name", "bytes", "kind",
// "live_in", "live_out", "needed": [first node, last node]}], "nodes": [{"id", "name", "kind", "kernel", "layer",
// "grid", "block", "shared_bytes", "bytes_read", "bytes_written", "uses": [{"field", "buffer", "offset", "bytes",
// "access", and "peer" ("out", "in") of packets}]}], "edges": [{"from", "to", "type", "reasons"}], "device", "about":
// the facts, "folds", "timings": as graph/timing/plan_timings.h has them, or null} "peak" and "needed" are those of
// graph/edges/buffer_lifetimes.h; a buffer that nobody needs has no "needed". "folds" is
// {"runs": [{"first", "count", "times"}], "bodies": {node id: [the same for each plan inside it]}}: from node `first`,
// `times` blocks of `count` nodes that are the same (graph/edges/plan_fold.h).
// A kernel node also has "waits_for_inputs", "releases_after_wait" where it does, "exchange" (its number) where it
// takes part in one, "request" (the kernel with its constants) where a KernelCache made it, "attributes" {"cluster",
// "cooperative", "priority", "shared_carveout_percent", "device_updatable",
// "green_multiprocessors"} where one of them is set, and "arguments":
// [{"field", "role", "type", "value"}] for scalars, with "count" (elements) in place of "value" for memory, and neither
// for conditions. A copy has "copy":
// {"bytes", "rows", "from", "to", "slices" of a box}; a fill "fill": {"value", "element_bytes", "count", "rows"}; a
// conditional node "conditional":
// {"type", "default_value", "reset_each_launch"}; a values node "values": ["32 bits >= 0x3"]; a semaphore's
// "semaphore_value"; a child "patchable_inside"; both have "bodies": plans in this form up
// to "edges". Of a graph that was built elsewhere (graph/read/read_graph.h) a node may have "what", a kernel
// "possible":
// [{"field", "buffer", "offset", "bytes"}], and each argument "hex": its bytes as they lie in memory, two digits each,
// with dots for addresses. A value that no double holds exactly (an integer beyond 2^53, nan, inf) is a string, one
// whose type is "other" null. Throws Error as check_timings does. `about`: facts from outside the plan, such as
// {"model", "demo"} and {"commit", "03c575c"}.
std::string to_json(const Plan& plan, const PlanTimings* timings = nullptr, const PlanFacts& about = {});

// One page for a browser, without any further file and without network: the plan folded by layer, every node's kernel,
// arguments and edges, every buffer's lifetime, writers and readers, coloured by bytes, or by time where `timings` are
// given, then also with a timeline and the critical path.
// Throws Error as check_timings does.
std::string to_html(const Plan& plan, const PlanTimings* timings = nullptr, const PlanFacts& about = {});

}  // namespace nodewright
