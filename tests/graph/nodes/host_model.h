// What a plan computes: its nodes one after the other, in their order, on a copy of its memory. Knows no edges and no
// driver, so that every run of the plan can be compared with it, bit by bit.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/node.h"
#include "tests/graph/kernels/blend.h"

namespace nodewright {

class HostModel {
 public:
  // What host nodes and library nodes do to the model's memory, by node name.
  std::map<std::string, std::function<void(HostModel&)>, std::less<>> host_functions;

  bool poisons_sources = false;  // copies leave 0xA5 in the pinned memory that they read
  // Nodes that are switched off, by name.
  std::set<std::string, std::less<>> off;

  void add(uint64_t address, const std::vector<uint32_t>& words) {
    auto& bytes = memory_[address];
    bytes.resize(words.size() * sizeof(uint32_t));
    std::memcpy(bytes.data(), words.data(), bytes.size());
  }

  std::vector<uint32_t> words(uint64_t address, uint64_t count) {
    std::vector<uint32_t> result(count);
    std::memcpy(result.data(), at(address, count * sizeof(uint32_t)), count * sizeof(uint32_t));
    return result;
  }

  // `bytes` bytes at an address of the plan. Throws std::out_of_range outside the memory added.
  std::byte* at(uint64_t address, uint64_t bytes) {
    const auto above = memory_.upper_bound(address);
    if (above == memory_.begin()) throw std::out_of_range("address below all memory");
    const auto& [begin, held] = *std::prev(above);
    if (address + bytes > begin + held.size()) throw std::out_of_range("address outside all memory");
    return const_cast<std::byte*>(held.data()) + (address - begin);
  }
  uint32_t& word(uint64_t address) { return *reinterpret_cast<uint32_t*>(at(address, sizeof(uint32_t))); }

  // One launch.
  void run(const Plan& plan) {
    set_defaults(plan);
    run_nodes(plan);
  }

 private:
  static constexpr int kMostRounds = 1000;

  void set_defaults(const Plan& plan) {
    for (const ConditionInfo& condition : plan.conditions) conditions_[condition.address] = condition.default_value;
    for (const PlanNode& node : plan.nodes)
      for (const auto& body : node.bodies) set_defaults(*body);
  }

  void run_nodes(const Plan& plan) {
    for (const PlanNode& node : plan.nodes) run_node(node);
  }

  void run_node(const PlanNode& node) {
    if (off.contains(node.name)) return;
    switch (node.kind) {
      case NodeKind::kernel:
        return run_kernel(node);
      case NodeKind::memcpy:
        for (uint64_t i = 0; i < node.copy.slices * node.copy.rows; ++i) {
          const uint64_t slice = i / node.copy.rows, row = i % node.copy.rows;
          std::byte* from =
              at(node.copy.from + (slice * node.copy.from_height + row) * node.copy.from_pitch, node.copy.bytes);
          std::memcpy(at(node.copy.to + (slice * node.copy.to_height + row) * node.copy.to_pitch, node.copy.bytes),
                      from, node.copy.bytes);
          if (poisons_sources && node.copy.from_host) std::memset(from, 0xa5, node.copy.bytes);
        }
        return;
      case NodeKind::memset:
        for (uint64_t row = 0; row < node.fill.rows; ++row)
          for (uint64_t i = 0; i < node.fill.count; ++i)
            std::memcpy(at(node.fill.to + row * node.fill.pitch + i * node.fill.element_bytes, node.fill.element_bytes),
                        &node.fill.value, node.fill.element_bytes);
        return;
      case NodeKind::host:
      case NodeKind::library:
        return host_functions.at(node.name)(*this);
      case NodeKind::child:
        return run_nodes(*node.bodies[0]);
      case NodeKind::conditional:
        return run_conditional(node);
      case NodeKind::empty:
      case NodeKind::event_record:
      case NodeKind::event_wait:
      case NodeKind::semaphore_signal:
      case NodeKind::semaphore_wait:
      case NodeKind::other:
        return;
      case NodeKind::values:
        for (const ValueOperation& operation : node.values) run_operation(node, operation);
        return;
      case NodeKind::allocate:
        return add(node.allocated, std::vector<uint32_t>((node.uses[0].bytes + 3) / 4, 0xdeadbeef));
      case NodeKind::free:
        memory_.erase(node.allocated);
        return;
    }
  }

  void run_operation(const PlanNode& node, const ValueOperation& operation) {
    uint64_t held = 0;
    std::byte* word = at(operation.address, operation.bytes);
    std::memcpy(&held, word, operation.bytes);
    if (!operation.waits)
      std::memcpy(word, &operation.value, operation.bytes);
    else if (operation.until == Until::equal ? held != operation.value : held < operation.value)
      throw std::logic_error("node '" + node.name + "' waits for a value that nobody writes");
  }

  void run_conditional(const PlanNode& node) {
    const auto value = [&] { return conditions_.at(node.condition); };
    switch (node.conditional) {
      case ConditionalKind::if_:
        if (const size_t chosen = value() != 0 ? 0 : 1; chosen < node.bodies.size()) run_nodes(*node.bodies[chosen]);
        return;
      case ConditionalKind::while_:
        for (int round = 0; value() != 0; ++round) {
          if (round == kMostRounds) throw std::logic_error("node '" + node.name + "' goes round without end");
          run_nodes(*node.bodies[0]);
        }
        return;
      case ConditionalKind::switch_:
        if (value() < node.bodies.size()) run_nodes(*node.bodies[value()]);
        return;
    }
  }

  template <class Args>
  static Args arguments_of(const PlanNode& node) {
    Args args;
    std::memcpy(&args, node.arguments.data(), sizeof args);
    return args;
  }
  template <class Role>
  uint32_t& element(const Role& role, uint64_t index) {
    return word(reinterpret_cast<uint64_t>(role.data) + index * sizeof(uint32_t));
  }

  void run_kernel(const PlanNode& node) {
    const uint64_t reached = node.shape.blocks() * kBlendThreads;
    if (node.kernel_name() == "blend" || node.kernel_name() == "hasty_blend") {
      const auto args = arguments_of<Blend>(node);
      for (uint64_t i = 0; i < std::min(reached, args.y.count); ++i) {
        const uint32_t key = args.key.count == 0 ? 0 : element(args.key, i % args.key.count);
        element(args.y, i) =
            (element(args.a, i % args.a.count) * 1664525u + element(args.b, i % args.b.count) * 22695477u + key) ^
            args.salt;
      }
    } else if (node.kernel_name() == "accumulate") {
      const auto args = arguments_of<Accumulate>(node);
      for (uint64_t i = 0; i < std::min(reached, args.y.count); ++i)
        element(args.y, i) = element(args.y, i) * 31u + element(args.x, i % args.x.count) + args.salt;
    } else if (node.kernel_name() == "scaled") {
      const auto args = arguments_of<Accumulate>(node);
      const auto factor = static_cast<uint32_t>(std::get<int64_t>(node.kernel->request.constants.at(0).value.held));
      for (uint64_t i = 0; i < std::min(reached, args.y.count); ++i)
        element(args.y, i) = element(args.y, i) * factor + element(args.x, i % args.x.count) + args.salt;
    } else if (node.kernel_name() == "foreign_blend") {
      run_foreign_blend(node, 31);
    } else if (node.kernel_name() == "foreign_other") {
      run_foreign_blend(node, 17);
    } else if (node.kernel_name() == "decide") {
      const auto args = arguments_of<Decide>(node);
      conditions_.at(args.condition.handle) = element(args.value, 0) % args.modulus + args.base;
    } else if (node.kernel_name() == "count") {
      const auto args = arguments_of<Count>(node);
      conditions_.at(args.again.handle) = ++element(args.rounds, 0) < args.limit ? 1 : 0;
    } else if (node.kernel_name() == "shared_probe") {
      const auto args = arguments_of<SharedProbe>(node);
      for (uint32_t block = 0; block < std::min<uint64_t>(node.shape.blocks(), args.y.count); ++block)
        element(args.y, block) = static_cast<uint32_t>(node.shape.blocks()) * 1000u + block;
    } else if (node.kernel_name() == "cluster_probe") {
      const auto args = arguments_of<ClusterProbe>(node);
      for (uint32_t block = 0; block < node.shape.blocks(); ++block) {
        const uint32_t rank = block % args.cluster_blocks, first = block - rank;
        element(args.y, block) = first + rank / 2 + first * 1000u;
      }
    } else {
      throw std::logic_error("the model does not know kernel " + std::string(node.kernel_name()));
    }
  }

  // Its launches cover all elements.
  void run_foreign_blend(const PlanNode& node, uint32_t factor) {
    const auto argument = [&]<class T>(size_t index, T value) {
      std::memcpy(&value, node.arguments.data() + node.fields[index].offset, sizeof value);
      return value;
    };
    const auto shift = argument(0, uint8_t{});
    const auto [a, a_count] = argument(1, RoleField{});
    const auto key = argument(2, uint64_t{}), y = argument(4, uint64_t{}), n = argument(5, uint64_t{});
    const auto salt = argument(3, uint32_t{});
    const auto at_index = [&](uint64_t address, uint64_t i) -> uint32_t& { return word(address + 4 * i); };
    for (uint64_t i = 0; i < n; ++i)
      at_index(y, i) = at_index(y, i) * factor + ((at_index(a, i % a_count) << shift) ^ salt) + word(key);
  }

  std::map<uint64_t, std::vector<std::byte>> memory_;  // by first address
  std::map<uint64_t, uint32_t> conditions_;            // by ConditionInfo::address
};

}  // namespace nodewright
