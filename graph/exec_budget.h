// What explicit graphs cost in device memory and time: known before they are built, counted while they live, and
// refused beyond a limit.
//
//   GraphBudget budget(device, 64 << 20);
//   ExplicitGraph exec(plan, &budget);        // throws Error when it does not fit
//   replace(exec, next_plan, &budget);        // graph_exec.h: the old one is gone before the next is built
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "graph/node.h"

namespace nodewright {

// What one explicit graph takes.
struct ExecCost {
  uint64_t bytes = 0;  // of device memory
  double ms = 0;       // adding, instantiating and uploading, once the driver has built a graph in this process
};

// An upper bound for one exec among many. The driver takes memory in pieces of 2 MiB, so the first exec may show a
// whole piece and the next none: compare sums.
ExecCost estimate_exec(const Plan& plan);

// A limit of device memory for the graphs of a program. Not thread-safe: graphs that share a budget are built and
// destroyed on one thread at a time.
class GraphBudget {
 public:
  // Without a limit it only counts.
  explicit GraphBudget(uint64_t limit_bytes = std::numeric_limits<uint64_t>::max()) : limit_bytes_(limit_bytes) {}
  GraphBudget(const GraphBudget&) = delete;
  GraphBudget& operator=(const GraphBudget&) = delete;

  // What one exec holds of the budget, until it is destroyed. The budget must outlive it.
  class Share {
   public:
    Share() = default;
    // Counts `bytes` as used; refuses nothing.
    Share(GraphBudget& budget, uint64_t bytes) : budget_(&budget), bytes_(bytes) {}
    ~Share() {
      if (budget_ != nullptr) budget_->used_bytes_ -= bytes_;
    }
    Share(Share&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

   private:
    GraphBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // Takes the plan's estimate. Throws Error with the plan, its bytes, and what is used of the limit, when that is too
  // much; then nothing was built.
  Share take(const Plan& plan);

  uint64_t used_bytes() const { return used_bytes_; }    // by the shares that live
  uint64_t limit_bytes() const { return limit_bytes_; }  // of all shares together

 private:
  uint64_t limit_bytes_, used_bytes_ = 0;
};

}  // namespace nodewright
