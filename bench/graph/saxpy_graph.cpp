#include "bench/graph/saxpy_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr unsigned kTinyThreads = 32;

LaunchShape shape_of(KernelWidth width, const Device& device) {
  return width == KernelWidth::tiny
             ? launch_shape_1d(1, kTinyThreads)
             : launch_shape_1d(static_cast<unsigned>(device.properties().sm_count), kSaxpyThreads);
}

uint64_t floats_bytes(KernelWidth width, const Device& device) {
  return shape_of(width, device).blocks() * shape_of(width, device).threads() * sizeof(float);
}

std::vector<std::string> node_names(int nodes) {
  if (nodes < 1) throw Error({.doing = "measure a graph", .detail = fmt::format("it is to have {} nodes", nodes)});
  std::vector<std::string> names;
  for (int i = 0; i < nodes; ++i) names.push_back(fmt::format("n{}", i));
  return names;
}

}  // namespace

std::string_view to_string(GraphShape shape) { return shape == GraphShape::chain ? "chain" : "fork_join"; }
std::string_view to_string(KernelWidth width) { return width == KernelWidth::tiny ? "tiny" : "full"; }

SaxpyGraph::SaxpyGraph(Device& device, KernelCache& kernels, GraphShape shape, KernelWidth width, int nodes)
    : device_(device),
      shape_(shape),
      name_(fmt::format("{}.{}.{}", to_string(shape), to_string(width), nodes)),
      names_(node_names(nodes)),
      saxpy_(kernels.kernel<Saxpy>("saxpy", shape_of(width, device))),
      other_saxpy_(kernels.kernel<Saxpy>({"saxpy", {{"kOther", 1}}}, saxpy_.shape)),
      repeat_until_(kernels.kernel<RepeatUntil>("repeat_until", repeat_until_shape())),
      ones_(device, "ones", floats_bytes(width, device)),
      trunk_(device, "trunk", ones_.bytes()),
      branches_(device, "branches", kBranches * ones_.bytes()),
      rounds_(device, "rounds", sizeof(int32_t)) {
  reset();
}

void SaxpyGraph::declare_buffers(GraphBuilder& g) const {
  g.declare(range_of(ones_, "input"), {.live_in = true});
  g.declare(range_of(trunk_, "output"), {.live_in = true, .live_out = true});
  g.declare(range_of(branches_, "output"), {.live_in = true, .live_out = true});
}

std::vector<Node<Saxpy>> SaxpyGraph::launch_nodes(GraphBuilder& g, float a) const {
  const View<float> ones = view_of<float>(ones_), trunk = view_of<float>(trunk_), branches = view_of<float>(branches_);
  std::vector<Node<Saxpy>> nodes;
  nodes.reserve(names_.size());
  g.reserve(names_.size());
  if (shape_ == GraphShape::chain) {
    for (const std::string& name : names_) nodes.push_back(g.launch(name, saxpy_, {.x = ones, .y = trunk, .a = a}));
    return nodes;
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    const size_t turn = i % (kBranches + 1);
    if (turn == 0)  // reads of every branch as many elements as the trunk has, and is ordered after all of them
      nodes.push_back(g.launch(names_[i], saxpy_, {.x = branches, .y = trunk, .a = a}));
    else
      nodes.push_back(g.launch(names_[i], saxpy_,
                               {.x = trunk, .y = branches.subview((turn - 1) * trunk.count, trunk.count), .a = a}));
  }
  return nodes;
}

std::vector<Node<Saxpy>> SaxpyGraph::add_to(GraphBuilder& g, float a) const {
  declare_buffers(g);
  return launch_nodes(g, a);
}

Plan SaxpyGraph::plan(EdgePolicy policy, float a) const {
  GraphBuilder g(device_, name_);
  add_to(g, a);
  return std::move(g).finish(policy);
}

Plan SaxpyGraph::loop(EdgePolicy policy, float a, int32_t rounds) const {
  GraphBuilder g(device_, name_ + ".loop");
  declare_buffers(g);
  g.declare(range_of(rounds_, "state"), {.live_out = true});
  const View<int32_t> done = view_of<int32_t>(rounds_);
  g.fill("start", done, 0);
  const ConditionHandle again = g.condition("again", 1);
  g.while_loop("loop", again, [&](GraphBuilder& body) {
    launch_nodes(body, a);
    body.launch("repeat_until", repeat_until_,
                {.value = view_of<float>(trunk_),
                 .rounds = done,
                 .again = again,
                 .target = std::numeric_limits<float>::infinity(),
                 .most_rounds = rounds});
  });
  return std::move(g).finish(policy);
}

int32_t SaxpyGraph::rounds_done() const {
  std::array<int32_t, 1> rounds{};
  read_view<int32_t>(device_, rounds, view_of<int32_t>(rounds_), rounds_.name());
  return rounds[0];
}

void SaxpyGraph::reset() {
  const std::vector<float> ones(branches_.bytes() / sizeof(float), 1.0f);
  for (const DeviceBuffer* buffer : {&ones_, &trunk_, &branches_})
    write_view<float>(device_, view_of<float>(*buffer), std::span(ones).first(buffer->bytes() / sizeof(float)),
                      buffer->name());
}

std::vector<float> SaxpyGraph::values() const {
  std::vector<float> values((trunk_.bytes() + branches_.bytes()) / sizeof(float));
  const size_t trunk = trunk_.bytes() / sizeof(float);
  read_view<float>(device_, std::span(values).first(trunk), view_of<float>(trunk_), trunk_.name());
  read_view<float>(device_, std::span(values).subspan(trunk), view_of<float>(branches_), branches_.name());
  return values;
}

}  // namespace nodewright
