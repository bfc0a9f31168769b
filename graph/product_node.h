// A plan's product node in each of its runs.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "graph/library_nodes.h"
#include "graph/node.h"
#include "graph/product_form.h"

namespace nodewright {

// Where the node's operands lie: its uses, as addresses.
MatmulOperands operands_of(const Plan& plan, const PlanNode& node);

// The products of an explicit run. A reference product is a kernel of ours and is added as such; a library product is
// captured, and stands in the graph in the form that `forms` gives. Of nodes with the same product the first two are
// captured, and the others follow from those where RecordedProduct::move_to knows how.
class ProductNodes {
 public:
  explicit ProductNodes(ProductForms forms = ProductForms()) : forms_(std::move(forms)) {}
  // The products of the nodes that were added are still there. Throws Error with the node.
  BuiltProduct add(const Plan& plan, const PlanNode& node, const NodePlace& place);
  uint64_t recorded() const { return recorded_; }  // calls of the library

 private:
  struct Known {
    ProductForm form;
    std::optional<RecordedProduct> product;
  };

  ProductForms forms_;
  std::optional<Stream> stream_;  // to capture on
  std::map<const MatmulPlan*, Known> known_;
  uint64_t recorded_ = 0;
};

// Has a library load what the products of plans need, before there are graphs of them: finds out their forms, and
// captures each product once, on addresses as they stand in the plan. Takes device memory, as graphs then do not.
class ProductLoader {
 public:
  void load(const Plan& plan);
  size_t loaded() const { return seen_.size(); }  // products of a library so far

 private:
  ProductForms forms_;
  std::optional<Stream> stream_;
  std::set<const MatmulPlan*> seen_;
};

// The eager and the captured run: one call of the library, or one launch.
void submit_product(const Plan& plan, const PlanNode& node, CUstream stream);

// "product 16x3072x2048 bf16, b transposed; cuBLASLt 130100, algorithm 66, tile 10, stages 35, split-K 1"
std::string describe_product(const PlanNode& node);

// What the driver holds for the node, compared with what was added: one line for each difference.
std::vector<std::string> product_differences(const Plan& plan, const PlanNode& node, const BuiltProduct& built);

}  // namespace nodewright
