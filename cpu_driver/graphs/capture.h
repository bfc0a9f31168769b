// Stream capture: work given to a capturing stream becomes nodes of a graph. Keeps CUDA's rules of who may join.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cpu_driver/cuda_names.h"
#include "cpu_driver/work/work.h"
#include "runtime/calls/driver_entries.h"

namespace nodewright::cpu {

struct GraphNode;
struct Stream;
struct Event;

// A node that the next captured one depends on, and how.
struct CaptureTip {
  GraphNode* node;
  CUgraphEdgeData edge;
};

// A capture of the nodes that its graph has already.
struct Recapture {
  RecaptureCallback callback = nullptr;  // null: every change is taken
  void* data = nullptr;
  size_t next = 0;  // the node that comes next
};

struct Capture {
  std::shared_ptr<Graph> graph;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool to_graph = false;  // into a graph of the caller's
  std::optional<Recapture> again;
  bool invalid = false;
  std::vector<Stream*> streams;  // the origin and those that joined
};

CUresult begin_capture(State& state, const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       std::shared_ptr<Graph> graph, std::vector<CaptureTip> tips);
// Called without the driver's lock: `recapture`'s callback, before a node takes other parameters.
CUresult begin_recapture(State& state, const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                         std::shared_ptr<Graph> graph, const Recapture& recapture);
CUresult end_capture(State& state, Stream& stream, CUgraph* graph);

// Adds what would have been queued. `programmatic`: the launch attribute was set.
CUresult capture_work(State& state, Stream& stream, CUgraphNodeType type, Work work, bool programmatic = false);

CUresult capture_record(Stream& stream, Event& event);
CUresult capture_wait(State& state, const std::shared_ptr<Stream>& stream, Event& event);

// For calls that CUDA forbids while someone captures (allocation, device-wide synchronisation, legacy default stream):
// CUDA_SUCCESS, or the error, with the captures in question made invalid.
CUresult forbid_during_capture(State& state, CUresult error, const char* call);
// The same for a call on one stream.
CUresult forbid_on_capturing(Stream& stream, const char* call);

// A stream that is destroyed leaves its capture.
void abandon_capture(State& state, Stream& stream);

}  // namespace nodewright::cpu
