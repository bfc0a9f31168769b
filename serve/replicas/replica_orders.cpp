// Orders that go to all replicas: each gets them in the same order, and each caller gets one answer.
#include <algorithm>
#include <utility>

#include "serve/replicas/replicas.h"
#include "serve/replicas/sleep_outcomes.h"

namespace nodewright {
namespace {

// Answers of several replicas to one order; the last one calls `all`. One more is expected than there are replicas: the
// caller's own, when it holds no lock. Thread-safe.
template <class Answer>
class Answers {
 public:
  Answers(size_t replicas, std::function<void(std::vector<Answer>&)> all)
      : answers_(replicas), left_(replicas + 1), all_(std::move(all)) {}

  void set(size_t replica, Answer answer) {
    {
      const std::lock_guard lock(mutex_);
      answers_[replica] = std::move(answer);
    }
    arrive();
  }
  void arrive() {
    {
      const std::lock_guard lock(mutex_);
      if (--left_ > 0) return;
    }
    all_(answers_);
  }

 private:
  std::mutex mutex_;
  std::vector<Answer> answers_;
  size_t left_;
  std::function<void(std::vector<Answer>&)> all_;
};

}  // namespace

void Replicas::order(SleepOrder order) {
  const auto answers = std::make_shared<Answers<SleepOutcome>>(
      count(), [told = std::move(order.told)](std::vector<SleepOutcome>& outcomes) { told(combined(outcomes)); });
  {
    const std::lock_guard lock(mutex_);
    if (order.kind == SleepOrder::Kind::sleep) share_out(true);
    for (size_t i = 0; i < count(); ++i) {
      SleepOrder own{.kind = order.kind, .level = order.level, .aborts = order.aborts};
      own.told = [answers, i](const SleepOutcome& outcome) { answers->set(i, outcome); };
      loop(i).order(std::move(own));
    }
  }
  answers->arrive();
}

SleepLevel Replicas::sleep_level() const {
  SleepLevel lowest = SleepLevel::weights_dropped;
  bool any = false;
  for (const auto& replica : replicas_) {
    if (replica->loop.admission() == Admission::failed && count() > 1) continue;
    lowest = std::min(lowest, replica->loop.sleep_level());
    any = true;
  }
  return any ? lowest : SleepLevel::awake;
}

void Replicas::change(AdapterOrder order) {
  const bool loads = order.image != nullptr;
  const auto answers = std::make_shared<Answers<std::string>>(
      count(), [this, loads, name = order.name, told = std::move(order.told)](std::vector<std::string>& problems) {
        std::string problem;
        std::vector<size_t> changed;
        for (size_t i = 0; i < count(); ++i) {
          if (problems[i].empty()) changed.push_back(i);
          if (problems[i].empty() || !problem.empty()) continue;
          if (count() == 1 || loop(i).admission() != Admission::failed) problem = problems[i];
        }
        if (changed.empty() && problem.empty()) problem = problems.front();  // all have failed
        if (problem.empty() || !loads || changed.empty()) return told(problem);
        const auto undone = std::make_shared<Answers<std::string>>(
            changed.size(), [told, problem](std::vector<std::string>&) { told(problem); });
        for (size_t k = 0; k < changed.size(); ++k)
          loop(changed[k]).change({name, nullptr, [undone, k](const std::string& why) { undone->set(k, why); }});
        undone->arrive();
      });
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count(); ++i)
      loop(i).change({order.name, order.image, [answers, i](const std::string& why) { answers->set(i, why); }});
  }
  answers->arrive();
}

}  // namespace nodewright
