#include "graph/read/read_graph.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/edges/nested_uses.h"
#include "graph/edges/touched_ranges.h"
#include "graph/nodes/held_nodes.h"
#include "graph/nodes/host_call.h"
#include "graph/read/kernel_names.h"
#include "graph/read/read_blocks.h"
#include "graph/read/read_kernels.h"
#include "graph/read/read_memory.h"
#include "graph/read/read_orders.h"
#include "graph/read/stated_uses.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// The nodes of one graph, each after those that its edges name, otherwise as the driver lists them.
struct OrderedNodes {
  std::vector<CUgraphNode> nodes;
  std::unordered_map<CUgraphNode, uint32_t> id_of;
};

OrderedNodes ordered_nodes(const std::vector<CUgraphNode>& listed, const std::vector<HeldEdge>& edges,
                           const std::string& name) {
  std::unordered_map<CUgraphNode, uint32_t> place;
  for (uint32_t i = 0; i < listed.size(); ++i) place.emplace(listed[i], i);
  std::vector<std::vector<uint32_t>> next(listed.size());
  std::vector<uint32_t> missing(listed.size());
  for (const HeldEdge& edge : edges) {
    next[place.at(edge.from)].push_back(place.at(edge.to));
    ++missing[place.at(edge.to)];
  }
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < listed.size(); ++i)
    if (missing[i] == 0) ready.push(i);
  OrderedNodes ordered;
  for (; !ready.empty();) {
    const uint32_t i = ready.top();
    ready.pop();
    ordered.id_of.emplace(listed[i], static_cast<uint32_t>(ordered.nodes.size()));
    ordered.nodes.push_back(listed[i]);
    for (const uint32_t to : next[i])
      if (--missing[to] == 0) ready.push(to);
  }
  if (ordered.nodes.size() != listed.size())
    throw Error({.doing = "read graph",
                 .object = name,
                 .detail = fmt::format("{} of its {} nodes follow themselves", listed.size() - ordered.nodes.size(),
                                       listed.size()),
                 .advice = "take out an edge of the cycle"});
  return ordered;
}

// The function that a host node calls, where the dynamic linker knows it.
std::string name_of_function(CUhostFn function) {
  if (function == call_host) return "";
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(function), &info) == 0) return "";
  if (info.dli_sname != nullptr) return demangled(info.dli_sname);
  return fmt::format("a function of {}", std::filesystem::path(info.dli_fname).filename().string());
}

uint64_t word_at(const PlanNode& node, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, node.arguments.data() + offset, sizeof word);
  return word;
}

// "2", or of the word at byte 8 of a struct "2+8".
std::string_view name_of_word(const FieldInfo& field, size_t at) {
  return kept_name(at == 0 ? std::string(field.name) : fmt::format("{}+{}", field.name, at));
}

std::string words_of_end(CUmemorytype type) {
  switch (type) {
    case CU_MEMORYTYPE_ARRAY:
      return "an array";
    case CU_MEMORYTYPE_HOST:
      return "host memory";
    default:
      return "memory";
  }
}

// One graph after the other, the outermost first.
class GraphReader {
 public:
  GraphReader(Device& device, std::span<const StatedKernel> stated)
      : device_(device), driver_(device.driver()), stated_(stated) {}

  Plan read(CUgraph graph, const std::string& name) {
    Plan plan = read_nodes(graph, name);
    memory_.place(plan);
    find_reasons(plan);
    return plan;
  }

 private:
  Plan read_nodes(CUgraph graph, const std::string& name) {
    const std::vector<HeldEdge> edges = held_edges(driver_, graph, name);
    const OrderedNodes ordered = ordered_nodes(held_nodes(driver_, graph, name), edges, name);
    Plan plan;
    plan.name = name;
    plan.device = &device_;
    plan.read = kernels_;
    plan.nodes.resize(ordered.nodes.size());
    for (const HeldEdge& held : edges) {
      Edge edge = edge_of(held.data);
      edge.from = ordered.id_of.at(held.from);
      edge.to = ordered.id_of.at(held.to);
      edge.reasons.push_back({.hazard = Hazard::declared});
      if (edge.type == EdgeType::programmatic) plan.nodes[edge.to].waits_for_inputs = true;  // its maker's word
      plan.edges.push_back(std::move(edge));
    }
    std::ranges::sort(plan.edges, {}, [](const Edge& edge) { return std::pair(edge.to, edge.from); });
    std::map<std::string, size_t> numbers;
    for (uint32_t id = 0; id < ordered.nodes.size(); ++id) {
      PlanNode& node = plan.nodes[id];
      node.id = id;
      read_node(plan, node, ordered.nodes[id], numbers);
    }
    name_blocks(plan);
    return plan;
  }

  // `numbers`: of the names given so far.
  void read_node(Plan& plan, PlanNode& node, CUgraphNode handle, std::map<std::string, size_t>& numbers) {
    const std::string place = fmt::format("{}, node {}", plan.name, node.id);
    const CUgraphNodeType type = held_type(driver_, handle, place);
    const auto read = std::make_shared<ReadNode>();
    read->handle = handle;
    std::string& what = read->what;
    std::string_view base;
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        base = read_kernel(node, *read, place);
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        what = read_copy(node, handle, place);
        base = to_string(NodeKind::memcpy);
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        node.kind = NodeKind::memset;
        node.fill = held_fill(driver_, handle, place);
        for_each_row(node.fill, [&](std::string_view field, uint64_t address, uint64_t bytes, Access access) {
          node.uses.push_back({.field = field, .offset = address, .bytes = bytes, .access = access});
        });
        break;
      case CU_GRAPH_NODE_TYPE_HOST:
        what = read_host(node, handle, place);
        break;
      case CU_GRAPH_NODE_TYPE_GRAPH:
        base = "child";
        break;
      case CU_GRAPH_NODE_TYPE_EMPTY:
        node.kind = NodeKind::empty;
        break;
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        node.kind = NodeKind::event_wait;
        check(driver_.cuGraphEventWaitNodeGetEvent(handle, &node.event), "cuGraphEventWaitNodeGetEvent", place);
        break;
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        node.kind = NodeKind::event_record;
        check(driver_.cuGraphEventRecordNodeGetEvent(handle, &node.event), "cuGraphEventRecordNodeGetEvent", place);
        break;
      case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        what = read_semaphores(node, handle, type, place);
        break;
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        break;  // below: the memory is called after the node
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        what = read_values(node, handle, place);
        base = to_string(NodeKind::values);
        break;
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        base = "conditional";
        break;
      default:
        node.kind = NodeKind::other;
        what = fmt::format("a node of type {}", static_cast<int>(type));
        break;
    }
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) node.kind = NodeKind::allocate;
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) node.kind = NodeKind::free;
    std::string named(base.empty() ? to_string(node.kind) : base);
    std::ranges::replace(named, ' ', '_');
    node.name = fmt::format("{}.{}", named, numbers[named]++);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) read_allocation(node, handle);
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) what = read_free(node, handle);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) read_child(plan, node, handle);
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) what = read_conditional(plan, node, handle);
    for (const Use& use : node.uses) memory_.add(use);
    node.read = read;
  }

  // Returns the name to number.
  std::string_view read_kernel(PlanNode& node, ReadNode& read, const std::string& place) {
    const CUDA_KERNEL_NODE_PARAMS held = held_kernel(driver_, read.handle, place);
    const ReadKernels::Kernel& kernel = kernels_->of(device_, held);
    node.kind = NodeKind::kernel;
    node.kernel = &kernel.loaded;
    node.fields = kernel.fields;
    node.shape.grid[0] = held.gridDimX;
    node.shape.grid[1] = held.gridDimY;
    node.shape.grid[2] = held.gridDimZ;
    node.shape.block[0] = held.blockDimX;
    node.shape.block[1] = held.blockDimY;
    node.shape.block[2] = held.blockDimZ;
    node.shape.shared_bytes = held.sharedMemBytes;
    node.attributes = held_attributes(driver_, read.handle, place);
    node.attributes.green = held_green(device_, held);
    const std::vector<std::byte> arguments = held_arguments(held, kernel.loaded.parameters);
    node.arguments.assign(arguments.begin(), arguments.end());
    add_pointers(node, read, kernel, place);
    return kernel.short_name;
  }

  // A stated or a possible use for every eight bytes of an argument that are an address.
  void add_pointers(PlanNode& node, ReadNode& read, const ReadKernels::Kernel& kernel, const std::string& place) {
    const StatedKernel* stated = stated_of(stated_, kernel.loaded.name, kernel.short_name);
    std::set<size_t> stated_at;  // where they are in the arguments
    if (stated != nullptr) {
      node.waits_for_inputs |= stated->waits;
      for (const StatedUse& use : stated->uses) {
        const size_t offset = add_stated_use(node, *stated, use, place);
        if (stated_at.insert(offset).second) read.pointers.push_back(static_cast<uint32_t>(offset));
      }
    }
    for (const FieldInfo& field : node.fields)
      for (size_t at = 0; at + sizeof(uint64_t) <= field.bytes; at += sizeof(uint64_t)) {
        const uint64_t address = word_at(node, field.offset + at);
        if (stated_at.contains(field.offset + at) || !memory_.knows(address)) continue;
        read.possible.push_back({.field = name_of_word(field, at), .offset = address});
        read.pointers.push_back(static_cast<uint32_t>(field.offset + at));
      }
  }

  // Returns where the address is in the arguments.
  size_t add_stated_use(PlanNode& node, const StatedKernel& stated, const StatedUse& use, const std::string& place) {
    const std::string argument =
        fmt::format("argument {}{}", use.argument, use.at == 0 ? "" : fmt::format(" at {}", use.at));
    const auto refuse = [&](std::string detail, std::string advice) {
      throw Error({.doing = "read graph",
                   .object = place,
                   .detail = fmt::format("{} states what {} of kernel '{}' does: {}",
                                         stated.source.empty() ? "a StatedKernel" : stated.source, argument,
                                         node.kernel->name, detail),
                   .advice = std::move(advice),
                   .fault = Fault::usage});
    };
    if (use.argument >= node.fields.size())
      refuse(fmt::format("the kernel has {} parameters", node.fields.size()), "count parameters from 0 on");
    const FieldInfo& field = node.fields[use.argument];
    if (use.at % sizeof(uint64_t) != 0)
      refuse("the place of an address is a multiple of 8 bytes", "name where eight bytes are an address");
    if (field.bytes < sizeof(uint64_t) || use.at > field.bytes - sizeof(uint64_t))
      refuse(fmt::format("the parameter has {} bytes", field.bytes), "name where eight bytes are an address");
    const size_t offset = field.offset + use.at;
    const uint64_t address = word_at(node, offset);
    if (address == 0) return offset;
    const uint64_t held = memory_.bytes_from(address);
    if (use.bytes == 0 && held == 0)
      refuse(fmt::format("the driver knows no allocation at {:#x}", address), "state how many bytes it uses");
    if (use.bytes > (held == 0 ? ~address : held))
      refuse(
          fmt::format("{} at {:#x} ends before {} bytes", held == 0 ? "memory" : "the allocation", address, use.bytes),
          "state fewer bytes");
    node.uses.push_back(
        {.field = name_of_word(field, use.at), .offset = address, .bytes = use.bytes, .access = use.access});
    return offset;
  }

  // This and those below return what the node is beyond a plan's words.
  std::string read_copy(PlanNode& node, CUgraphNode handle, const std::string& place) {
    const CUDA_MEMCPY3D held = held_copy(driver_, handle, place);
    node.kind = NodeKind::memcpy;
    for (const Use& use : linear_uses(device_, held)) node.uses.push_back(use);
    if (const auto copy = copy_of(device_, held)) {
      node.copy = *copy;
      return "";
    }
    node.kind = NodeKind::other;
    return fmt::format("copies {} planes of {} rows of {} B from {} to {}", held.Depth, held.Height, held.WidthInBytes,
                       words_of_end(held.srcMemoryType), words_of_end(held.dstMemoryType));
  }

  std::string read_host(PlanNode& node, CUgraphNode handle, const std::string& place) {
    CUDA_HOST_NODE_PARAMS held{};
    check(driver_.cuGraphHostNodeGetParams(handle, &held), "cuGraphHostNodeGetParams", place);
    node.kind = NodeKind::host;
    return name_of_function(held.fn);
  }

  std::string read_semaphores(PlanNode& node, CUgraphNode handle, CUgraphNodeType type, const std::string& place) {
    const bool signals = type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
    const std::vector<SemaphoreParameters> held = held_semaphores(driver_, handle, type, place);
    node.kind = signals ? NodeKind::semaphore_signal : NodeKind::semaphore_wait;
    if (held.size() == 1) {
      node.semaphore = held[0];
      return "";
    }
    node.kind = NodeKind::other;
    std::string values;
    for (const SemaphoreParameters& one : held) values += fmt::format("{} {}", values.empty() ? ":" : ",", one.value);
    return fmt::format("{} {} external semaphores{}", signals ? "signals" : "waits for", held.size(), values);
  }

  std::string read_values(PlanNode& node, CUgraphNode handle, const std::string& place) {
    const CUDA_BATCH_MEM_OP_NODE_PARAMS held = held_values(driver_, handle, place);
    node.kind = NodeKind::values;
    for (unsigned i = 0; i < held.count; ++i) {
      const auto operation = operation_of(held.paramArray[i]);
      if (!operation) {
        node.kind = NodeKind::other;
        node.values.clear();
        return fmt::format("{} memory operations, number {} of type {}", held.count, i,
                           static_cast<int>(held.paramArray[i].operation));
      }
      node.values.push_back(*operation);
    }
    for (const WordUse& use : word_uses(node.values))
      node.uses.push_back({.field = kept_name(node.uses.empty() ? "value" : fmt::format("value {}", node.uses.size())),
                           .offset = use.address,
                           .bytes = use.bytes,
                           .access = use.access()});
    return "";
  }

  void read_allocation(PlanNode& node, CUgraphNode handle) {
    CUDA_MEM_ALLOC_NODE_PARAMS held{};
    check(driver_.cuGraphMemAllocNodeGetParams(handle, &held), "cuGraphMemAllocNodeGetParams", node.name);
    node.allocated = held.dptr;
    allocated_[held.dptr] = held.bytesize;
    memory_.add_allocation(node.name, held.dptr, held.bytesize);
    node.uses.push_back({.field = "memory", .offset = held.dptr, .bytes = held.bytesize, .access = Access::out});
  }

  std::string read_free(PlanNode& node, CUgraphNode handle) {
    CUdeviceptr address = 0;
    check(driver_.cuGraphMemFreeNodeGetParams(handle, &address), "cuGraphMemFreeNodeGetParams", node.name);
    node.allocated = address;
    const auto held = allocated_.find(address);
    if (held == allocated_.end()) return "memory that another graph allocated";
    node.uses.push_back({.field = "memory", .offset = address, .bytes = held->second, .access = Access::out});
    return "";
  }

  void read_child(const Plan& plan, PlanNode& node, CUgraphNode handle) {
    CUgraph inside = nullptr;
    check(driver_.cuGraphChildGraphNodeGetGraph(handle, &inside), "cuGraphChildGraphNodeGetGraph", node.name);
    node.kind = NodeKind::child;
    node.bodies.push_back(std::make_shared<Plan>(read_nodes(inside, fmt::format("{}/{}", plan.name, node.name))));
  }

  std::string read_conditional(const Plan& plan, PlanNode& node, CUgraphNode handle) {
    if (!driver_.cuGraphNodeGetParams) {
      node.kind = NodeKind::other;
      return "a conditional node, whose bodies drivers before CUDA 13.2 do not tell";
    }
    CUgraphNodeParams held{};
    check(driver_.cuGraphNodeGetParams(handle, &held), "cuGraphNodeGetParams", node.name);
    const CUDA_CONDITIONAL_NODE_PARAMS& conditional = held.conditional;
    switch (conditional.type) {
      case CU_GRAPH_COND_TYPE_IF:
        node.conditional = ConditionalKind::if_;
        break;
      case CU_GRAPH_COND_TYPE_WHILE:
        node.conditional = ConditionalKind::while_;
        break;
      case CU_GRAPH_COND_TYPE_SWITCH:
        node.conditional = ConditionalKind::switch_;
        break;
      default:
        node.kind = NodeKind::other;
        return fmt::format("a conditional node of type {}", static_cast<int>(conditional.type));
    }
    node.kind = NodeKind::conditional;
    for (unsigned i = 0; i < conditional.size; ++i)
      node.bodies.push_back(std::make_shared<Plan>(read_nodes(
          conditional.phGraph_out[i], fmt::format("{}/{}.{}", plan.name, node.name, body_name(node.conditional, i)))));
    return "";
  }

  void check(CUresult result, std::string_view call, std::string_view place) const {
    if (result != CUDA_SUCCESS) driver_.check(result, call, "read graph", place);
  }

  Device& device_;
  const Driver& driver_;
  std::span<const StatedKernel> stated_;
  std::shared_ptr<ReadKernels> kernels_ = std::make_shared<ReadKernels>();
  ReadMemory memory_{device_};
  std::map<uint64_t, uint64_t> allocated_;  // bytes of the memory of allocation nodes, by address
};

}  // namespace

Plan read_graph(Device& device, CUgraph graph, const ReadOptions& options) {
  const ContextGuard current(device);
  return GraphReader(device, options.uses).read(graph, options.name);
}

}  // namespace nodewright
