// The origin stream's capture spreads to streams that wait for its events, and must come back before it ends.
#include "cpu_driver/graphs/capture.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/graph_exec.h"
#include "cpu_driver/graphs/graph_memory.h"
#include "cpu_driver/graphs/graph_rules.h"

extern "C" CUresult CUDAAPI cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams* params);

namespace nodewright::cpu {
namespace {

constexpr CUgraphEdgeData kFullEdge{};
constexpr CUgraphEdgeData kProgrammaticEdge{.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                            .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};

void leave(Stream& stream) {
  stream.capture = nullptr;
  stream.tips.clear();
}

// Captures under way, for the calls that all of them forbid.
std::vector<Capture*>& running() {
  static auto& captures = *new std::vector<Capture*>;
  return captures;
}

// Everything that the tips depend on, and they themselves.
std::unordered_set<const GraphNode*> reached(const std::vector<CaptureTip>& tips) {
  std::unordered_set<const GraphNode*> seen;
  std::vector<const GraphNode*> open;
  for (const CaptureTip& tip : tips) open.push_back(tip.node);
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    for (const GraphEdge& edge : node->in) open.push_back(edge.from);
  }
  return seen;
}

void add_tips(std::vector<CaptureTip>& tips, const std::vector<CaptureTip>& more) {
  for (const CaptureTip& tip : more)
    if (std::none_of(tips.begin(), tips.end(), [&](const CaptureTip& t) { return t.node == tip.node; }))
      tips.push_back(tip);
}

bool same_edges(const std::vector<GraphEdge>& a, const std::vector<GraphEdge>& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const GraphEdge& edge) {
           return std::any_of(b.begin(), b.end(), [&](const GraphEdge& other) {
             return edge.from == other.from && memcmp(&edge.data, &other.data, sizeof edge.data) == 0;
           });
         });
}

CUresult end_recapture(Capture& capture, const std::string& why) {
  capture.invalid = true;
  return refuse(kRecaptureFailure, "the recapture failed: " + why);
}

// The callback, which may call the driver: without its lock, and with the later parameters as a node's.
CUresult ask_about(State& state, const Recapture& again, GraphNode& node, Work work, RecaptureStatus status) {
  const auto later = std::make_shared<GraphNode>();
  later->owner = node.owner;
  later->type = node.type;
  later->work = std::move(work);
  later->handle = state.nodes.add(later);
  state.mutex.unlock();
  CUgraphNodeParams before, after;
  CUresult result = cuGraphNodeGetParams(node.handle, &before);
  if (result == CUDA_SUCCESS) result = cuGraphNodeGetParams(later->handle, &after);
  if (result == CUDA_SUCCESS) result = again.callback(again.data, node.handle, &before, &after, status);
  state.mutex.lock();
  state.nodes.take(later->handle);
  return result;
}

// The node that comes next takes the work, if it is the same node but for its parameters.
CUresult recapture_work(State& state, Stream& stream, CUgraphNodeType type, Work work,
                        const std::vector<GraphEdge>& in) {
  const std::shared_ptr<Capture> capture = stream.capture;
  Recapture& again = *capture->again;
  if (again.next == capture->graph->nodes.size()) return end_recapture(*capture, "there are more nodes than before");
  const std::shared_ptr<GraphNode> node = capture->graph->nodes[again.next++];
  const std::string name = "node " + std::to_string(again.next - 1);
  if (node->type != type) return end_recapture(*capture, name + " is of another type");
  if (!same_edges(node->in, in)) return end_recapture(*capture, name + " has other edges");
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return end_recapture(*capture, name + " allocates or frees, which the CPU driver does not recapture");
  if (!same_parameters(node->work, work)) {
    const auto exec = capture->graph->exec.lock();
    const bool eligible = may_become(node->work, work, exec != nullptr ? exec->flags : 0);
    if (again.callback != nullptr &&
        ask_about(state, again, *node, work, eligible ? kRecaptureEligible : kRecaptureIneligible) != CUDA_SUCCESS)
      return end_recapture(*capture, "the callback refused " + name);
    node->work = std::move(work);
  }
  stream.tips = {{node.get(), kFullEdge}};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult begin_recapture(State& state, const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                         std::shared_ptr<Graph> graph, const Recapture& recapture) {
  graph->kept.clear();  // cuStreamBeginRecaptureToGraph in cuda.h
  const CUresult result = begin_capture(state, stream, mode, std::move(graph), {});
  if (result == CUDA_SUCCESS) stream->capture->again = recapture;
  return result;
}

CUresult begin_capture(State&, const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       std::shared_ptr<Graph> graph, std::vector<CaptureTip> tips) {
  if (stream->capture != nullptr) return refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is capturing already");
  auto capture = std::make_shared<Capture>();
  capture->to_graph = graph != nullptr;
  capture->graph = graph != nullptr ? std::move(graph) : std::make_shared<Graph>();
  capture->graph->capturing = true;
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams = {stream.get()};
  running().push_back(capture.get());
  stream->capture = std::move(capture);
  stream->tips = std::move(tips);
  return CUDA_SUCCESS;
}

CUresult end_capture(State& state, Stream& stream, CUgraph* graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (graph != nullptr) *graph = nullptr;
  if (capture == nullptr) return refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing");
  if (capture->origin != &stream)
    return refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was begun on another stream");
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return refuse(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread");
  const auto joined = reached(stream.tips);
  bool unjoined = false;
  for (const Stream* other : capture->streams)
    for (const CaptureTip& tip : other->tips) unjoined |= joined.count(tip.node) == 0;
  for (Stream* member : capture->streams) leave(*member);
  std::erase(running(), capture.get());
  capture->graph->capturing = false;
  if (capture->again && !capture->invalid && capture->again->next != capture->graph->nodes.size())
    return end_recapture(*capture, "there are fewer nodes than before");
  if (capture->invalid || unjoined) {
    if (!capture->to_graph) destroy_graph(state, *capture->graph);
    return capture->invalid ? refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a forbidden call came during the capture")
                            : refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "work on a forked stream was not joined");
  }
  if (capture->graph->handle == nullptr) capture->graph->handle = state.graphs.add(capture->graph);
  if (graph != nullptr) *graph = capture->graph->handle;
  return CUDA_SUCCESS;
}

CUresult capture_work(State& state, Stream& stream, CUgraphNodeType type, Work work, bool programmatic) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode probe;
  probe.type = type;
  probe.work = work;
  if (const CUresult result = check_placement(state, *capture.graph, type, work); result != CUDA_SUCCESS) {
    capture.invalid = true;
    return result;
  }
  std::vector<GraphEdge> in;
  for (const CaptureTip& tip : stream.tips) {
    const bool wants = programmatic && tip.node->type == CU_GRAPH_NODE_TYPE_KERNEL;
    const GraphEdge edge{tip.node, wants ? kProgrammaticEdge : tip.edge};
    if (const CUresult result = check_edge(*edge.from, probe, edge.data); result != CUDA_SUCCESS) {
      capture.invalid = true;
      return result;
    }
    in.push_back(edge);
  }
  if (const CUresult result = check_memory(*capture.graph, work, in); result != CUDA_SUCCESS) {
    capture.invalid = true;
    return result;
  }
  if (capture.again) return recapture_work(state, stream, type, std::move(work), in);
  const auto node = new_node(state, *capture.graph, type, std::move(work));
  node->in = std::move(in);
  note_freed(node->work);
  stream.tips = {{node.get(), kFullEdge}};
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream& stream, Event& event) {
  if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.capture = stream.capture;
  event.tips = stream.tips;
  return CUDA_SUCCESS;
}

CUresult capture_wait(State& state, const std::shared_ptr<Stream>& stream, Event& event) {
  if (event.capture == nullptr) {
    stream->capture->invalid = true;
    return refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                  "a capturing stream waits for an event recorded outside the capture");
  }
  if (stream == state.null_stream)
    return refuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy default stream cannot capture");
  if (event.capture->graph->capturing == false)
    return refuse(CUDA_ERROR_CAPTURED_EVENT, "the event's capture has ended");
  if (stream->capture == nullptr) {
    stream->capture = event.capture;
    event.capture->streams.push_back(stream.get());
  } else if (stream->capture != event.capture) {
    stream->capture->invalid = event.capture->invalid = true;
    return refuse(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the event belongs to another capture");
  }
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  add_tips(stream->tips, event.tips);
  return CUDA_SUCCESS;
}

CUresult forbid_during_capture(State&, CUresult error, const char* call) {
  bool forbidden = false;
  for (Capture* capture : running()) {
    const bool concerned =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && capture->thread == std::this_thread::get_id());
    if (!concerned) continue;
    capture->invalid = true;
    forbidden = true;
  }
  return forbidden ? refuse(error, std::string(call) + " while a stream captures") : CUDA_SUCCESS;
}

CUresult forbid_on_capturing(Stream& stream, const char* call) {
  if (stream.capture == nullptr) return CUDA_SUCCESS;
  stream.capture->invalid = true;
  return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, std::string(call) + " on a capturing stream");
}

void abandon_capture(State& state, Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  capture->invalid = true;
  std::erase(capture->streams, &stream);
  leave(stream);
  if (capture->origin != &stream) return;
  for (Stream* member : capture->streams) leave(*member);
  std::erase(running(), capture.get());
  capture->graph->capturing = false;
  if (!capture->to_graph) destroy_graph(state, *capture->graph);
}

}  // namespace nodewright::cpu
