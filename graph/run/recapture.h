// What the driver finds other in the nodes of a captured graph when it is captured again (CUDA 13.3).
#pragma once

#include <cuda.h>

#include <functional>
#include <string>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// One node whose parameters changed.
struct RecaptureChange {
  std::string node;                  // its name in the plan; "" inside a library's calls, where no name can be told
  bool updatable = true;             // the instantiated graph can take it
  std::vector<std::string> changed;  // "kernel", "shape", "argument 'scale'", "address", "value"; empty: of the kind
  // The driver's parameters of the node, until the function returns.
  const CUgraphNodeParams *before = nullptr, *after = nullptr;
};

// "l0.attend: shape, argument 'scale'", "wait: parameters; the instantiated graph cannot take it".
std::string describe(const RecaptureChange& change);

// Called for every node that changed, while the plan is captured. False ends the recapture. It may throw, and does not
// use the stream that captures.
using OnRecaptureChange = std::function<bool(const RecaptureChange&)>;

// Finds in what the node of a graph changed. `node`: of the later plan; null: not known.
RecaptureChange recapture_change(const PlanNode* node, const CUgraphNodeParams& before, const CUgraphNodeParams& after,
                                 bool updatable);

}  // namespace nodewright
