#include "base/work_budget.h"

#include <algorithm>
#include <string>

namespace nodewright {
namespace {

constexpr uint64_t kWorkBetweenLooks = 1'000'000;

}  // namespace

thread_local WorkBudget* WorkBudget::innermost = nullptr;

WorkBudget::WorkBudget(uint64_t most, std::function<bool()> is_cancelled)
    : most_(most), is_cancelled_(std::move(is_cancelled)), outer_(innermost) {
  innermost = this;
}

WorkBudget::~WorkBudget() { innermost = outer_; }

void WorkBudget::look() {
  if (spent_ > most_)
    throw WorkExceeded("the request takes more than " + std::to_string(most_) +
                       " units of work to read; a shorter text or a simpler structure takes less");
  if (is_cancelled_ && is_cancelled_()) throw WorkCancelled("the job was cancelled");
  next_look_ = std::min(spent_ + kWorkBetweenLooks, most_ + 1);
}

}  // namespace nodewright
