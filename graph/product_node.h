// A plan's product node in each of its runs.
#pragma once

#include <string>

#include "graph/library_nodes.h"
#include "graph/node.h"
#include "graph/product_form.h"

namespace nodewright {

// Where the node's operands lie: its uses, as addresses.
MatmulOperands operands_of(const Plan& plan, const PlanNode& node);

// The explicit run. A reference product is a kernel of ours and is added as such; a library product is captured, and
// stands in the graph in the form that `forms` gives. Throws Error with the node.
BuiltProduct add_product(const Plan& plan, const PlanNode& node, const NodePlace& place, ProductForms& forms);

// The eager and the captured run: one call of the library, or one launch.
void submit_product(const Plan& plan, const PlanNode& node, CUstream stream);

// "product 16x3072x2048 bf16, b transposed; cuBLASLt 130100, algorithm 66, tile 10, stages 35, split-K 1"
std::string describe_product(const PlanNode& node);

// What the driver holds for the node, compared with what was added: one line for each difference.
std::vector<std::string> product_differences(const Plan& plan, const PlanNode& node, const BuiltProduct& built);

}  // namespace nodewright
