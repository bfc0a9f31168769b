#include "graph/nodes/kept_objects.h"

#include <memory>

namespace nodewright {
namespace {

using Reference = std::shared_ptr<const void>;

void CUDA_CB drop_reference(void* reference) { delete static_cast<Reference*>(reference); }

}  // namespace

void KeptObjects::retain(const Plan& plan, CUgraph graph, KeptInside inside) {
  for (const KeptObject& kept : plan.kept) {
    auto reference = std::make_unique<Reference>(kept.object);
    CUuserObject object = nullptr;
    driver_->check(
        driver_->cuUserObjectCreate(&object, reference.get(), drop_reference, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        "cuUserObjectCreate", "keep object", kept.name);
    reference.release();  // NOLINT(bugprone-unused-return-value): the driver's from here on
    const CUresult result = driver_->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
      driver_->cuUserObjectRelease(object, 1);
      driver_->check(result, "cuGraphRetainUserObject", "keep object", kept.name);
    }
    retained_.push_back({graph, object});
  }
  for (const PlanNode& node : plan.nodes)
    if (node.kind == NodeKind::conditional || inside == KeptInside::bodies_and_children)
      for (const auto& body : node.bodies) retain(*body, graph, inside);
}

void KeptObjects::release_first(size_t count) {
  // Where the driver refuses, the graph lets go when it is destroyed.
  for (size_t i = 0; i < count; ++i) driver_->cuGraphReleaseUserObject(retained_[i].graph, retained_[i].object, 1);
  retained_.erase(retained_.begin(), retained_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace nodewright
