// How much a job may compute, in counted work rather than time: the same input ends in the same way on every machine.
// Code that loops over untrusted input calls spend(); the caller that starts the job sets the limit.
//
//   WorkBudget budget(100'000'000, [&] { return client_has_left; });
//   tokenizer.encode(text);   // throws WorkExceeded or WorkCancelled from within
//
// A budget is its thread's from construction to destruction, and not that of threads that the job starts.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>

namespace nodewright {

// The job wants more work than it may have.
struct WorkExceeded : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Nobody wants the job's result any more.
struct WorkCancelled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class WorkBudget {
 public:
  // `is_cancelled`: asked about once for each million units; must not throw. May be empty.
  explicit WorkBudget(uint64_t most, std::function<bool()> is_cancelled = {});
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // So much of this thread's innermost budget, and of those around it; nothing where there is none. A unit is about
  // what one byte or one state costs, a few nanoseconds.
  static void spend(uint64_t work) {
    if (innermost != nullptr) innermost->take(work);
  }
  // Looks now whether the job is cancelled, around what cannot look itself.
  static void look_now() {
    for (WorkBudget* budget = innermost; budget != nullptr; budget = budget->outer_) budget->look();
  }
  uint64_t spent() const { return spent_; }

 private:
  void take(uint64_t work) {
    spent_ += work;
    if (spent_ >= next_look_) look();
    if (outer_ != nullptr) outer_->take(work);
  }
  void look();

  static thread_local WorkBudget* innermost;

  const uint64_t most_;
  const std::function<bool()> is_cancelled_;
  uint64_t spent_ = 0, next_look_ = 0;
  WorkBudget* outer_;
};

}  // namespace nodewright
