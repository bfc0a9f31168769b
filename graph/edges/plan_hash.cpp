#include "graph/edges/plan_hash.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace nodewright {
namespace {

// FNV-1a, 64 bits (RFC 9923).
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
    add_byte(0xff);  // no letter of UTF-8: "ab", "c" is not "a", "bc"
  }
  template <typename Number>
  requires std::is_integral_v<Number>
  void add(Number number) {
    for (size_t i = 0; i < sizeof(uint64_t); ++i)
      add_byte(static_cast<uint8_t>(static_cast<uint64_t>(number) >> 8 * i));
  }
  uint64_t value() const { return value_; }

 private:
  void add_byte(uint8_t byte) { value_ = (value_ ^ byte) * 1099511628211u; }
  uint64_t value_ = 14695981039346656037u;
};

void add_plan(Hash& hash, const Plan& plan) {
  hash.add(plan.name);
  hash.add(plan.nodes.size());
  for (const PlanNode& node : plan.nodes) {
    hash.add(node.name);
    hash.add(to_string(node.kind));
    hash.add(node.kernel_name());
    for (const unsigned size : node.shape.grid) hash.add(size);
    for (const unsigned size : node.shape.block) hash.add(size);
    for (const unsigned size : node.shape.cluster) hash.add(size);
    hash.add(node.shape.shared_bytes);
    for (const unsigned size : node.attributes.cluster) hash.add(size);
    hash.add(node.attributes.cooperative);
    if (node.attributes.device_updatable) hash.add("device-updatable");
    hash.add(node.attributes.priority);
    hash.add(node.attributes.shared_carveout_percent);
    if (const unsigned green = node.attributes.green.multiprocessors; green != 0) hash.add("green"), hash.add(green);
    hash.add(node.kernel == nullptr ? std::string() : to_string(node.kernel->request));
    hash.add(node.traffic.bytes_read);
    hash.add(node.traffic.bytes_written);
    hash.add(node.bodies.size());
    for (const auto& body : node.bodies) add_plan(hash, *body);
  }
  hash.add(plan.edges.size());
  for (const Edge& edge : plan.edges) {
    hash.add(edge.from);
    hash.add(edge.to);
    hash.add(to_string(edge.type));
    if (edge.type != EdgeType::other) continue;
    for (const uint8_t word : {edge.driver_type, edge.from_port, edge.to_port}) hash.add(word);
  }
}

}  // namespace

std::string plan_hash(const Plan& plan) {
  Hash hash;
  add_plan(hash, plan);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace nodewright
