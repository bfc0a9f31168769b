// Entry points: streams, events, host functions, capture.
#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/capture.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

CUresult no_event() { return refuse(CUDA_ERROR_INVALID_HANDLE, "no such event: never created, or destroyed"); }

bool is_done(const Event& event) { return event.recorded == nullptr || event.recorded->done; }

CUresult check_not_captured(const Event& event) {
  if (event.capture == nullptr) return CUDA_SUCCESS;
  event.capture->invalid = true;
  return refuse(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture");
}

}  // namespace

CUresult CUDAAPI cuStreamCreate(CUstream* out, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) {
    if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    stream->flags = flags;
    stream->context = current_context;
    *out = stream->handle = s.streams.add(stream);
    return CUDA_SUCCESS;
  });
}

// Work still queued runs later, as in CUDA: the executor keeps the stream until then.
CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  return enter_release([&](State& s, Lock&) {
    const auto stream = s.streams.take(handle);
    if (stream == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream: never created, or destroyed");
    abandon_capture(s, *stream);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = forbid_on_capturing(*stream, "cuStreamSynchronize"); result != CUDA_SUCCESS)
      return result;
    if (stream == s.null_stream) return s.executor->wait_for_blocking(lock);
    return s.executor->wait_for(lock, stream->last);
  });
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = forbid_on_capturing(*stream, "cuStreamQuery"); result != CUDA_SUCCESS) return result;
    if (stream->queue.empty()) return CUDA_SUCCESS;
    const CUresult result = s.executor->advance(lock, stream->last);
    if (result != CUDA_SUCCESS) return result;
    return stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto event = s.events.find(event_handle);
    if (event == nullptr) return no_event();
    if (flags > CU_EVENT_WAIT_EXTERNAL) return refuse(CUDA_ERROR_INVALID_VALUE, "unknown flags of cuStreamWaitEvent");
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
      if (stream->capture == nullptr)
        return refuse(CUDA_ERROR_INVALID_VALUE, "CU_EVENT_WAIT_EXTERNAL outside of a capture");
      return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, {take_label(), WaitWork{event}});
    }
    if (stream->capture != nullptr || event->capture != nullptr) return capture_wait(s, stream, *event);
    if (is_done(*event)) return CUDA_SUCCESS;
    Operation operation;
    operation.after.push_back(event->recorded);
    s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Work work{take_label(), HostWork{function, data}};
    if (stream->capture != nullptr) return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_HOST, std::move(work));
    Operation operation;
    operation.work = std::move(work);
    s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) {
    constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (out == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_shared<Event>();
    event->timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    event->context = current_context;
    *out = event->handle = s.events.add(event);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  return enter_release([&](State& s, Lock&) { return s.events.take(handle) != nullptr ? CUDA_SUCCESS : no_event(); });
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream_handle) {
  return cuEventRecordWithFlags(handle, stream_handle, CU_EVENT_RECORD_DEFAULT);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto stream = s.find_stream(stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto event = s.events.find(handle);
    if (event == nullptr) return no_event();
    if (event->context != current_context)
      return refuse(CUDA_ERROR_INVALID_HANDLE,
                    "the event belongs to device " + std::to_string(device_of(event->context)) +
                        ", the stream to device " + std::to_string(device_of(current_context)));
    if (flags > CU_EVENT_RECORD_EXTERNAL) return refuse(CUDA_ERROR_INVALID_VALUE, "unknown flags of an event record");
    if (flags == CU_EVENT_RECORD_EXTERNAL) {
      if (stream->capture == nullptr)
        return refuse(CUDA_ERROR_INVALID_VALUE, "CU_EVENT_RECORD_EXTERNAL outside of a capture");
      return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, {take_label(), RecordWork{event}});
    }
    if (stream->capture != nullptr) return capture_record(*stream, *event);
    event->capture = nullptr;
    event->tips.clear();
    event->recorded = s.executor->enqueue(lock, stream, {});
    return s.sticky;
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto event = s.events.find(handle);
    if (event == nullptr) return no_event();
    if (const CUresult result = check_not_captured(*event); result != CUDA_SUCCESS) return result;
    return s.executor->wait_for(lock, event->recorded);
  });
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto event = s.events.find(handle);
    if (event == nullptr) return no_event();
    if (const CUresult result = check_not_captured(*event); result != CUDA_SUCCESS) return result;
    if (is_done(*event)) return CUDA_SUCCESS;
    const CUresult result = s.executor->advance(lock, event->recorded);
    if (result != CUDA_SUCCESS) return result;
    return is_done(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent start_handle, CUevent end_handle) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto start = s.events.find(start_handle), end = s.events.find(end_handle);
    if (start == nullptr || end == nullptr) return no_event();
    if (ms == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!start->timing || !end->timing || start->recorded == nullptr || end->recorded == nullptr)
      return refuse(CUDA_ERROR_INVALID_HANDLE, "an event without timing, or never recorded");
    if (!start->recorded->done || !end->recorded->done) return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>(end->recorded->at_ms - start->recorded->at_ms);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == s.null_stream)
      return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy default stream cannot capture");
    return begin_capture(s, stream, mode, nullptr, {});
  });
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                                             const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == s.null_stream)
      return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy default stream cannot capture");
    const auto graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such graph");
    if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "another stream captures into the graph");
    std::vector<CaptureTip> tips;
    for (size_t i = 0; i < count; ++i) {
      const auto node = s.nodes.find(dependencies[i]);
      if (node == nullptr || node->owner != graph.get())
        return refuse(CUDA_ERROR_INVALID_VALUE, "a dependency is not a node of the graph");
      tips.push_back({node.get(), data != nullptr ? data[i] : CUgraphEdgeData{}});
    }
    return begin_capture(s, stream, mode, graph, std::move(tips));
  });
}

extern "C" CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream handle, CUstreamCaptureMode mode,
                                                          CUgraph graph_handle, RecaptureCallback callback,
                                                          void* data) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == s.null_stream)
      return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy default stream cannot capture");
    const auto graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such graph");
    if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "another stream captures into the graph");
    return begin_recapture(s, stream, mode, graph, {callback, data});
  });
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return end_capture(s, *stream, graph);
  });
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}
