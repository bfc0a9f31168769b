// A CUgraph that Python hands over, read as a plan: the shared library that read_torch.py calls by ctypes.
#include <nodewright/nodewright.h>

#include <fstream>
#include <iostream>
#include <string>

using namespace nodewright;

// Reads `graph`, of the device with that ordinal, with the uses stated in the file `uses` (null: none), prints it,
// folded, with what its orders lack, and writes its dump with the times of its nodes to `json`. Returns how many nodes
// it has, or -1 after printing an error. `edges`: how many edges.
extern "C" __attribute__((visibility("default"))) int nodewright_read_graph(int ordinal, void* graph, const char* uses,
                                                                            const char* json, int* edges) try {
  const OpenedDevice opened = open_device("cuda:" + std::to_string(ordinal));
  const Stream stream(opened, "main");
  KernelCache kernels(opened);
  ReadOptions options{.name = "torch"};
  if (uses != nullptr) options.uses = read_uses(uses);
  const TimedGraph timed = time_graph(opened, static_cast<CUgraph>(graph), kernels, stream, options);
  std::cout << to_text(timed.plan, Fold::layers) << order_report(timed.plan);
  double sum_us = 0;
  for (const NodeTiming& node : timed.timings.nodes) sum_us += node.time_us + 2 * timed.timings.bracket_us;
  std::cout << "its nodes and their brackets take " << sum_us << " us, the step with brackets " << timed.timings.step_us
            << " us, without " << timed.timings.plain_step_us << " us" << std::endl;
  std::ofstream(json) << to_json(timed.plan, &timed.timings);
  *edges = static_cast<int>(timed.plan.edges.size());
  return static_cast<int>(timed.plan.nodes.size());
} catch (const std::exception& error) {
  std::cerr << "read_torch: " << error.what() << std::endl;
  return -1;
}
