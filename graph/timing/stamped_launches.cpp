#include "graph/timing/stamped_launches.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "graph/graph_builder.h"
#include "kernels_src/stamp.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// Stamps in the row that an empty bracket is measured by: its time is the mean of the steps between them.
constexpr uint64_t kStampsInARow = 9;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of each time over the samples of one node. Samples that did not run it do not count.
NodeTiming median(const std::vector<const NodeTiming*>& samples) {
  NodeTiming result{.node = samples.front()->node, .bracketed = samples.front()->bracketed};
  for (double NodeTiming::*member : {&NodeTiming::time_us, &NodeTiming::span_us, &NodeTiming::overlap_us,
                                     &NodeTiming::start_us, &NodeTiming::end_us, &NodeTiming::waited_us}) {
    std::vector<double> values;
    for (const NodeTiming* sample : samples) values.push_back(sample->*member);
    result.*member = median(std::move(values));
  }
  for (size_t body = 0; body < samples.front()->bodies.size(); ++body) {
    std::map<uint32_t, std::vector<const NodeTiming*>> inside;
    for (const NodeTiming* sample : samples)
      for (const NodeTiming& timing : sample->bodies[body]) inside[timing.node].push_back(&timing);
    std::vector<NodeTiming>& medians = result.bodies.emplace_back();
    for (const auto& [id, list] : inside) medians.push_back(median(list));
  }
  return result;
}

double us_between(uint64_t from, uint64_t to) { return (static_cast<double>(to) - static_cast<double>(from)) * 1e-3; }

// begin -> end -> begin ... with nothing between: full edges, as a bracket has.
Plan stamps_in_a_row(Device& device, KernelCache& kernels, const DeviceBuffer& stamps) {
  GraphBuilder g(device, stamps.name());
  g.declare(range_of(stamps, "workspace"), {.live_out = true});
  const Kernel<Stamp> kernel = kernels.kernel<Stamp>("stamp", stamp_shape());
  std::vector<NodeId> last;
  for (uint64_t i = 0; i < kStampsInARow; ++i)
    last = {g.launch("stamp" + std::to_string(i), kernel, {.stamps = view_of<BlockStamps>(stamps).subview(i, 1)},
                     {.after = last})};
  return std::move(g).finish(EdgePolicy::full);
}

bool has_brackets(const TimedTwin& twin) {
  return std::any_of(twin.nodes.begin(), twin.nodes.end(), [](const StampedNode& node) { return node.bracketed; });
}

// For each node, its predecessors.
std::vector<std::vector<uint32_t>> predecessors(const Plan& plan) {
  std::vector<std::vector<uint32_t>> before(plan.nodes.size());
  for (const Edge& edge : plan.edges) before[edge.to].push_back(edge.from);
  return before;
}

// The nodes that ran, with times from the first start among them.
std::vector<NodeTiming> timings_of(const Plan& plan, const std::vector<StampedNode>& layout,
                                   std::span<const NodeSpan> spans, double bracket_us) {
  uint64_t origin = UINT64_MAX;
  for (const NodeSpan& span : spans)
    if (span.end != 0) origin = std::min(origin, span.start);
  const std::vector<std::vector<uint32_t>> before = predecessors(plan);
  std::vector<NodeTiming> timings;
  for (uint32_t id = 0; id < spans.size(); ++id) {
    const NodeSpan& span = spans[id];
    if (span.end == 0) continue;
    NodeTiming timing{.node = id, .start_us = us_between(origin, span.start), .bracketed = layout[id].bracketed};
    timing.span_us = us_between(span.start, span.end);
    if (timing.bracketed) {
      timing.time_us = timing.span_us = std::max(0.0, timing.span_us - bracket_us);
    } else {
      uint64_t ready = origin;  // its latest predecessor's end
      for (const uint32_t earlier : before[id]) ready = std::max(ready, spans[earlier].end);
      timing.time_us = us_between(ready, span.end);
      timing.overlap_us = std::max(0.0, us_between(span.start, ready));
      timing.waited_us = span.waited == 0 ? 0 : us_between(origin, span.waited);
    }
    timing.end_us = timing.start_us + timing.span_us;
    for (size_t i = 0; i < span.bodies.size(); ++i)
      timing.bodies.push_back(timings_of(*plan.nodes[id].bodies[i], layout[id].bodies[i], span.bodies[i], bracket_us));
    timings.push_back(std::move(timing));
  }
  return timings;
}

}  // namespace

StampedLaunches::StampedLaunches(const Plan& plan, const TimedTwin& twin, KernelCache& kernels, const Stream& stream)
    : stream_(stream),
      bracket_stamps_(*plan.device, plan.name + ".bracket",
                      has_brackets(twin) ? kStampsInARow * sizeof(BlockStamps) : 0),
      start_(*plan.device, plan.name + ".start", true),
      end_(*plan.device, plan.name + ".end", true) {
  if (bracket_stamps_.bytes() == 0) return;
  bracket_graph_.emplace(stamps_in_a_row(*plan.device, kernels, bracket_stamps_));
  bracket_graph_->upload(stream);
}

PlanTimings StampedLaunches::measure(const Plan& plan, const TimedTwin& twin, const Launch& launch_plan,
                                     const Launch& launch_twin, const NodeTimerOptions& options) {
  if (options.samples < 1 || options.launches_per_sample < 1)
    throw Error({.doing = "time the nodes of plan",
                 .object = plan.name,
                 .detail = std::to_string(options.samples) + " samples of " +
                           std::to_string(options.launches_per_sample) + " launches",
                 .advice = "take at least 1 of each",
                 .fault = Fault::usage});
  std::vector<double> steps, plain_steps, peaks, brackets;
  std::vector<std::vector<NodeTiming>> samples(plan.nodes.size());
  uint64_t clock_step = 0;
  for (int round = -2; round < options.samples; ++round) {  // two rounds warm up
    const bool plain_first = round % 2 == 0;
    double plain = plain_first ? step_us(launch_plan, options) : 0;
    clear(twin.stamps);
    const double step = step_us(launch_twin, options);
    const std::vector<BlockStamps> stamps = read(twin.stamps);
    if (!plain_first) plain = step_us(launch_plan, options);
    const double bracket = sample_bracket_us();
    const double peak = options.read_peak ? options.read_peak() : 0;
    if (round < 0) continue;
    steps.push_back(step);
    plain_steps.push_back(plain);
    brackets.push_back(bracket);
    peaks.push_back(peak);
    const std::vector<NodeTiming> timings = node_timings(plan, twin, node_spans(twin, stamps), bracket);
    for (size_t id = 0; id < timings.size(); ++id) samples[id].push_back(timings[id]);
    if (const uint64_t seen = clock_step_ns(stamps); seen != 0 && (clock_step == 0 || seen < clock_step))
      clock_step = seen;
  }
  PlanTimings result{.plan = plan.name,
                     .nodes = {},
                     .step_us = median(steps),
                     .plain_step_us = median(plain_steps),
                     .peak_bytes_per_s = median(peaks),
                     .bracket_us = median(brackets),
                     .clock_step_us = static_cast<double>(clock_step) * 1e-3,
                     .samples = options.samples};
  for (const std::vector<NodeTiming>& of_node : samples) {
    std::vector<const NodeTiming*> list;
    for (const NodeTiming& timing : of_node) list.push_back(&timing);
    result.nodes.push_back(median(list));
  }
  return result;
}

// Microseconds a launch: back to back, or one by one where the host prepares each.
double StampedLaunches::step_us(const Launch& launch, const NodeTimerOptions& options) const {
  double ms = 0;
  const auto timed = [&](int launches) {
    start_.record(stream_);
    for (int i = 0; i < launches; ++i) launch(stream_);
    end_.record(stream_);
    end_.synchronize();
    ms += static_cast<double>(end_.ms_since(start_));
  };
  if (!options.before_launch) {
    timed(options.launches_per_sample);
  } else {
    for (int i = 0; i < options.launches_per_sample; ++i) {
      stream_.synchronize();
      options.before_launch();
      timed(1);
    }
  }
  return ms * 1e3 / options.launches_per_sample;
}

void StampedLaunches::clear(const DeviceBuffer& stamps) const {
  if (stamps.bytes() == 0) return;
  const Driver& driver = stream_.device().driver();
  const ContextGuard current(stream_.device());
  driver.check(driver.cuMemsetD8Async(stamps.address(), 0, stamps.bytes(), stream_.get()), "cuMemsetD8Async",
               "clear the time stamps", stamps.name());
}

std::vector<BlockStamps> StampedLaunches::read(const DeviceBuffer& stamps) const {
  std::vector<BlockStamps> slots(stamps.bytes() / sizeof(BlockStamps));
  stream_.synchronize();
  if (!slots.empty()) read_view(stream_.device(), std::span(slots), view_of<BlockStamps>(stamps), stamps.name());
  return slots;
}

double StampedLaunches::sample_bracket_us() {
  if (!bracket_graph_) return 0;
  bracket_graph_->launch(stream_);
  const std::vector<BlockStamps> stamps = read(bracket_stamps_);
  return us_between(stamps.front().ended, stamps.back().ended) / static_cast<double>(stamps.size() - 1);
}

std::vector<NodeTiming> node_timings(const Plan& plan, const TimedTwin& twin, std::span<const NodeSpan> spans,
                                     double bracket_us) {
  return timings_of(plan, twin.nodes, spans, bracket_us);
}

uint64_t clock_step_ns(std::span<const BlockStamps> stamps) {
  std::vector<uint64_t> times;
  for (const BlockStamps& block : stamps)
    for (const uint64_t time : {block.started, block.waited, block.ended})
      if (time != 0) times.push_back(time);
  std::sort(times.begin(), times.end());
  uint64_t least = 0;
  for (size_t i = 1; i < times.size(); ++i)
    if (const uint64_t step = times[i] - times[i - 1]; step != 0 && (least == 0 || step < least)) least = step;
  return least;
}

}  // namespace nodewright
