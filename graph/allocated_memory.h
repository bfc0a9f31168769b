// Memory that a plan allocates and frees itself: what nodes call it by before it has an address, and where it is in one
// graph or in one run.
//
//   const Allocation scratch = g.allocate("scratch", bytes);
//   g.launch("fill", fill, {.y = scratch.view<float>()});
//   g.free(scratch);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "graph/node.h"

namespace nodewright {

// The node that allocates, and its memory. Views of it are arguments of later nodes of the plan, and of plans inside
// it; the address in them means nothing elsewhere.
struct Allocation : NodeId {
  std::string name;        // of the buffer, with all its scopes
  uint64_t address = 0;    // planned, from kAllocationBase on
  uint64_t bytes = 0;      // of the memory
  size_t scope_chars = 0;  // of `name`: the scopes with their dots

  // The memory as elements of T, from byte 0.
  template <class T>
  View<T> view() const {
    return {reinterpret_cast<T*>(address), bytes / sizeof(T)};
  }
  // For plans inside this one, which declare it as any other buffer.
  NamedRange range() const { return {name, address, bytes, "allocation"}; }
};

// Where the memory of a plan is. Addresses of other memory are returned as they are.
class AllocatedMemory {
 public:
  // `name`: of the plan, for errors.
  explicit AllocatedMemory(std::string_view plan_name) : plan_name_(plan_name) {}

  // From now on what lies in `bytes` bytes from `planned` is at `address`; or nowhere.
  void place(uint64_t planned, uint64_t bytes, uint64_t address) { places_[planned] = {bytes, address}; }
  void remove(uint64_t planned) { places_.erase(planned); }
  bool empty() const { return places_.empty(); }  // nothing is placed
  // Those that are placed, by planned address: bytes and address.
  struct Place {
    uint64_t bytes = 0, address = 0;
  };
  const std::map<uint64_t, Place>& places() const { return places_; }

  // Throws Error when `planned` is memory that another plan allocates, or that is not allocated yet.
  uint64_t address_of(uint64_t planned) const { return is_allocated(planned) ? look_up(planned) : planned; }
  CopyParameters placed(CopyParameters copy) const;
  FillParameters placed(FillParameters fill) const;
  // Puts addresses in the place of planned ones, in a kernel's arguments or in the value of one of its fields.
  void place_arguments(const PlanNode& node, std::span<std::byte> arguments) const;
  void place_field(const FieldInfo& field, std::byte* value) const;

 private:
  uint64_t look_up(uint64_t planned) const;

  std::string plan_name_;
  std::map<uint64_t, Place> places_;
};

// Whether a field or an end of the node lies in memory that a plan allocates.
bool touches_allocated(const Plan& plan, const PlanNode& node);

// The node of the plan that allocates memory, null if there is none.
const PlanNode* first_allocation(const Plan& plan);

}  // namespace nodewright
