// All of the graph library: devices, memory, kernels, plans, and their runs. Knows no model. Each of these may be
// included by itself.
//
//   <nodewright/graph/graph_builder.h>   start here: nodes, edges that follow from what they touch, a plan
//   <nodewright/graph/graph_exec.h>      the plan as an explicit CUDA graph; patch.h changes it between launches
//   <nodewright/graph/node_timer.h>      what each node takes, without a profiler
//   <nodewright/graph/graph_dump.h>      the plan as text, DOT, JSON and a page
//   <nodewright/graph/team/team_graph.h> a plan and a graph a device, which exchange values while they run
#pragma once

#include <nodewright/version.h>

#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/edit/plan_edit.h"
#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "graph/hazard_check.h"
#include "graph/launch_arguments.h"
#include "graph/node.h"
#include "graph/patch.h"
#include "graph/plan_run.h"
#include "graph/read/driver_ids.h"
#include "graph/read/read_graph.h"
#include "graph/team/team.h"
#include "graph/team/team_check.h"
#include "graph/team/team_graph.h"
#include "graph/team/team_plan.h"
#include "graph/timing/node_timer.h"
#include "graph/timing/plan_timings.h"
#include "graph/uses.h"
#include "kernels_src/args.h"
#include "kernels_src/exchange/all_reduce.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/saxpy.h"
#include "runtime/context_guard.h"
#include "runtime/device.h"
#include "runtime/device_selection.h"
#include "runtime/driver.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/green_context.h"
#include "runtime/host_stand_in.h"
#include "runtime/kernels/foreign_kernel.h"
#include "runtime/kernels/inline_kernel.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/kernels/kernel_request.h"
#include "runtime/libraries/cuda_library_places.h"
#include "runtime/matmul_plan.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"
