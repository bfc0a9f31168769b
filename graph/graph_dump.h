// A plan as text for people, DOT for drawings and JSON for programs. The same plan gives the same bytes, wherever its
// buffers happen to lie: no address is printed.
#pragma once

#include <string>

#include "graph/node.h"

namespace nodewright {

// A summary, the buffers, then one line a node: shape, kernel, uses (<in, >out, <>inout, =frozen), and what it follows.
std::string to_text(const Plan& plan);

// One cluster a layer; solid edges are full, dashed ones programmatic; labels are the reasons.
std::string to_dot(const Plan& plan);

// {"name", "bucket", "buffers": [{"name", "bytes", "kind"}], "nodes": [{"id", "name", "kind", "kernel", "layer",
// "grid", "block", "shared_bytes", "bytes_read", "bytes_written", "uses": [{"field", "buffer", "offset", "bytes",
// "access"}]}], "edges": [{"from", "to", "type", "reasons"}]}
std::string to_json(const Plan& plan);

}  // namespace nodewright
