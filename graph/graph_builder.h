// Collects nodes with typed arguments and turns what they declare into a plan: edges are derived, never written down.
// Makes no driver call and launches nothing.
//
//   GraphBuilder g(device, "decode.b8", 8);
//   g.declare({"residual", view.address(), view.bytes(), "activation"}, {.live_in = true});
//   auto layer = g.scope("l0");
//   auto norm = g.launch("norm", k.rms_norm, {.x = residual, .gain = w.gain, .y = normed, .rows = 8});
//   Plan plan = std::move(g).finish(EdgePolicy::programmatic);
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "graph/hazard_tracker.h"
#include "graph/node.h"

namespace nodewright {

// serial: one chain in the order of the calls. full: the derived edges, all full. programmatic: the derived edges,
// programmatic wherever the kernels and the device allow it.
enum class EdgePolicy : uint8_t { serial, full, programmatic };

struct Live {
  bool live_in = false, live_out = false;
};

// Extras of one launch.
template <class A>
struct LaunchOptions {
  std::optional<Traffic> traffic;  // default: the bytes of the uses
  std::vector<NodeId> after;       // orders that no buffer shows
  // The same struct with memory fields as wide as patches may ever make them; edges come from these ranges. Each must
  // contain the field's own range. Scalars are not looked at.
  std::optional<A> envelope;
};

// One end of a copy: device memory, or pinned host memory.
struct CopyEnd {
  uint64_t address = 0, bytes = 0;
  bool host = false;

  template <class T>
  CopyEnd(const View<T>& view) : address(view.address()), bytes(view.bytes()) {}
  template <class T>
  CopyEnd(const Weight<T>& weight) : address(weight.address()), bytes(weight.bytes()) {}
  CopyEnd(const DeviceBuffer& buffer) : address(buffer.address()), bytes(buffer.bytes()) {}
  CopyEnd(const PinnedBuffer& buffer)
      : address(reinterpret_cast<uint64_t>(buffer.data())), bytes(buffer.bytes()), host(true) {}
  CopyEnd(uint64_t address, uint64_t bytes, bool host) : address(address), bytes(bytes), host(host) {}
};

// The range of a pinned buffer, to be declared when a copy uses it.
NamedRange range_of(const PinnedBuffer& buffer, std::string kind);
NamedRange range_of(const DeviceBuffer& buffer, std::string kind);

// Every function throws Error, with names and numbers, and then has added nothing.
class GraphBuilder {
 public:
  GraphBuilder(Device& device, std::string name, std::optional<int> bucket = std::nullopt);

  // Names a range that nodes may use. Refused: overlaps another declared range, or its name is taken. The same range
  // under the same name again adds its flags.
  void declare(NamedRange range, Live live = {});

  // Until the result is destroyed, node names start with `name` and a dot. Scopes nest; the outermost is the layer.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(GraphBuilder& builder) : builder_(builder) {}
    ~Scope() { builder_.scopes_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GraphBuilder& builder_;
  };
  Scope scope(std::string_view name);

  // Adds a kernel node with a copy of `args`. Refused: a name that is taken; a range outside every declared buffer, not
  // aligned to its element, read before anything wrote it, or overlapping another field's when either writes; a frozen
  // range that a node writes; a shape that the device or the kernel does not allow.
  template <KernelArgs A>
  Node<A> launch(std::string_view name, const Kernel<A>& kernel, const std::type_identity_t<A>& args,
                 std::optional<Traffic> traffic = std::nullopt) {
    return launch(name, kernel, args, LaunchOptions<A>{.traffic = traffic, .after = {}, .envelope = {}});
  }
  template <KernelArgs A>
  Node<A> launch(std::string_view name, const Kernel<A>& kernel, const std::type_identity_t<A>& args,
                 const LaunchOptions<std::type_identity_t<A>>& options);

  // Copies the first `bytes` of `from` over the first `bytes` of `to`. Not from host to host.
  NodeId copy(std::string_view name, const CopyEnd& to, const CopyEnd& from, uint64_t bytes,
              const std::vector<NodeId>& after = {});

  // Sets every element of `view`. Elements of 1 or 4 bytes take any value, others one whose bytes are all equal.
  template <class T>
  NodeId fill(std::string_view name, View<T> view, std::type_identity_t<T> value,
              const std::vector<NodeId>& after = {}) {
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    return add_fill(name, view.address(), view.bytes(), {bytes.data(), bytes.size()}, after);
  }

  // Does nothing, after all of `after`.
  NodeId empty(std::string_view name, const std::vector<NodeId>& after);

  size_t node_count() const { return plan_.nodes.size(); }
  const std::string& name() const { return plan_.name; }
  Device& device() const { return *plan_.device; }

  // The plan, with its edges, checked against missing_orders. Ends the builder.
  Plan finish(EdgePolicy policy) &&;

 private:
  // A use before it is known which buffer it lies in.
  struct AddressedUse {
    std::string_view field;
    uint64_t address = 0, bytes = 0;
    Access access = Access::in;
    uint64_t align_bytes = 1;
  };
  // What a node must follow; the edges are chosen among these when the plan is finished.
  struct Candidate {
    uint32_t from = 0;
    std::vector<Reason> reasons;
  };

  PlanNode new_node(std::string_view name, NodeKind kind) const;
  PlanNode new_kernel_node(std::string_view name, const LoadedKernel* kernel, const LaunchShape& shape,
                           uint64_t args_bytes) const;
  NodeId add_fill(std::string_view name, uint64_t to, uint64_t bytes, std::span<const unsigned char> pattern,
                  const std::vector<NodeId>& after);
  NodeId add(PlanNode node, std::span<const AddressedUse> uses, const std::optional<Traffic>& traffic,
             const std::vector<NodeId>& after);
  AddressedUse memory_use(const PlanNode& node, const FieldInfo& field, uint64_t address, uint64_t count) const;
  void check_envelope(const PlanNode& node, const AddressedUse& use, const AddressedUse& envelope) const;
  void check_shape(const PlanNode& node) const;
  void check_overlaps(const PlanNode& node) const;
  void check_initialised(const PlanNode& node) const;
  void check_frozen(const PlanNode& node) const;
  Use locate(const PlanNode& node, const AddressedUse& use) const;
  ByteRange address_range(const Use& use) const;
  [[noreturn]] void refuse(const PlanNode& node, std::string detail, std::string advice) const;
  std::vector<Edge> serial_edges() const;
  std::vector<Edge> derived_edges(bool programmatic) const;

  Plan plan_;
  std::vector<std::string> scopes_;
  std::map<uint64_t, uint32_t> buffer_at_;  // first address -> index in plan_.buffers
  std::unordered_map<std::string, uint32_t> buffer_named_;
  std::set<std::string, std::less<>> names_;
  HazardTracker hazards_;
  HazardTracker frozen_reads_;                      // frozen ranges, as reads that no write may follow
  std::vector<std::vector<Candidate>> candidates_;  // per node, by `from`
};

template <KernelArgs A>
Node<A> GraphBuilder::launch(std::string_view name, const Kernel<A>& kernel, const std::type_identity_t<A>& args,
                             const LaunchOptions<std::type_identity_t<A>>& options) {
  PlanNode node = new_kernel_node(name, kernel.loaded, kernel.shape, sizeof(A));
  node.arguments.resize(sizeof(A));
  std::memcpy(node.arguments.data(), &args, sizeof(A));

  std::vector<AddressedUse> own, wide;
  const auto collect = [&](const A& from, std::vector<AddressedUse>& into) {
    for_each_field(from, [&]<class F>(const FieldInfo& info, const F& field) {
      if constexpr (RoleOf<F>::role != Role::scalar && RoleOf<F>::role != Role::condition)
        into.push_back(memory_use(node, info, reinterpret_cast<uint64_t>(field.data), field.count));
    });
  };
  for_each_field(args, [&](const FieldInfo& info, const auto&) { node.fields.push_back(info); });
  collect(args, own);
  if (options.envelope) {
    collect(*options.envelope, wide);
    for (size_t i = 0; i < own.size(); ++i) check_envelope(node, own[i], wide[i]);
  }
  const NodeId id = add(std::move(node), options.envelope ? wide : own, options.traffic, options.after);
  return Node<A>{id};
}

}  // namespace nodewright
