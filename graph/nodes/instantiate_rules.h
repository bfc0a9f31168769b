// How an explicit graph is instantiated, and what each way forbids.
#pragma once

#include <cuda.h>

#include "graph/nodes/library_nodes.h"

namespace nodewright {

class GraphBudget;
class Stream;

// How ExplicitGraph builds and instantiates a plan.
struct InstantiateOptions {
  GraphBudget* budget = nullptr;                   // the plan's share of it is taken first
  LibraryForm library_form = LibraryForm::kernel;  // what a library node whose call submits one kernel becomes
  // Before each launch the driver frees what the launch before has left allocated: memory that no node frees, which the
  // plan declares live-out. Not with device_launch.
  bool auto_free_on_launch = false;
  // Kernels of other graphs may launch the graph (cudaGraphLaunch in device code), once it has been uploaded; so may
  // the host. Such a graph has kernels, copies, fills, children of these, and library nodes that become such, and at
  // least one of them.
  bool device_launch = false;
  const Stream* upload = nullptr;  // uploads the graph on this stream, of the plan's device, as it is instantiated
};

// Throws Error with the node that forbids it, and the rule (cuGraphInstantiateWithParams in cuda.h).
void check_options(const Plan& plan, const InstantiateOptions& options);

// The rules of device_launch alone, of the plan and of the children in it.
void check_device_launch(const Plan& plan);

// As CUgraphInstantiate_flags.
cuuint64_t flags_of(const InstantiateOptions& options);

// The node that allocates memory which the plan declares live-out, null if there is none.
const PlanNode* first_left_allocated(const Plan& plan);

// Throws Error, `doing` something with the plan, where it leaves memory allocated.
void refuse_left_memory(const Plan& plan, std::string_view doing);

}  // namespace nodewright
