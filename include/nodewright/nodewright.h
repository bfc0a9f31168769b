// All of the graph library: devices, memory, kernels, plans, and their runs. Knows no model.
//
//   graph/graph_builder.h   start here: nodes, edges that follow from what they touch, a plan
//   graph/graph_exec.h      the plan as an explicit CUDA graph; graph/patch.h changes it between launches
//   graph/node_timer.h      what each node takes, without a profiler
//   graph/graph_dump.h      the plan as text, DOT, JSON and a page
#pragma once

#include "graph/bucket_set.h"
#include "graph/captured_run.h"
#include "graph/eager_run.h"
#include "graph/exec_budget.h"
#include "graph/graph_builder.h"
#include "graph/graph_dump.h"
#include "graph/graph_exec.h"
#include "graph/graph_reserve.h"
#include "graph/hazard_check.h"
#include "graph/node_timer.h"
#include "graph/patch.h"
#include "graph/plan_run.h"
#include "graph/timing_trace.h"
#include "kernels_src/saxpy.h"
#include "nodewright/version.h"
#include "runtime/cuda_library_places.h"
#include "runtime/device_selection.h"
#include "runtime/event.h"
#include "runtime/foreign_kernel.h"
#include "runtime/host_heap.h"
#include "runtime/inline_kernel.h"
#include "runtime/kernel_cache.h"
#include "runtime/matmul_plan.h"
#include "runtime/memory.h"
#include "runtime/stream.h"
