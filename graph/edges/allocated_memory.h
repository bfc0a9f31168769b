// Where the memory that a plan allocates and frees itself (GraphBuilder::allocate) is in one graph or in one run.
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
  // Where the plan has what lies at `address`: the way back.
  uint64_t planned(uint64_t address) const;
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
