// The orders of an engine loop: when a sleep may begin, and what a wake does to one that waits.
#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "runtime/error.h"
#include "serve/loop/engine_loop.h"

namespace nodewright {
namespace {

bool is_sleep(const SleepOrder& order) { return order.kind == SleepOrder::Kind::sleep; }

SleepChange obey(EngineSleep& sleep, const SleepOrder& order) {
  switch (order.kind) {
    case SleepOrder::Kind::sleep:
      return sleep.sleep(order.level);
    case SleepOrder::Kind::wake_weights:
      return sleep.wake_weights();
    case SleepOrder::Kind::wake:
      break;
  }
  return sleep.wake();
}

}  // namespace

void EngineLoop::order(SleepOrder order) {
  {
    const std::lock_guard lock(mutex_);
    if (accepts_ && !draining_ && !failed_) {
      rests_ = rests_ || is_sleep(order);
      new_orders_.push_back(std::move(order));
      came_.notify_one();
      return;
    }
  }
  order.told({.end = SleepEnd::not_now, .level = sleep_level()});
}

SleepLevel EngineLoop::sleep_level() const {
  const std::lock_guard lock(mutex_);
  return sleep_level_;
}

// As far as they can be followed now: a sleep waits until nothing is open, and no cancelled row in flight.
void EngineLoop::follow_orders(Engine& engine) {
  while (!orders_.empty()) {
    const bool is_busy = !outputs_.empty() || !engine.pipeline().is_drained();
    if (is_busy && is_sleep(orders_.front())) {
      const auto wake = std::ranges::find_if_not(orders_, is_sleep);
      if (wake == orders_.end()) return abort_for_sleep(engine);
      for (auto order = orders_.begin(); order != wake; ++order) tell(*order, {.end = SleepEnd::called_off});
      orders_.erase(orders_.begin(), wake);
    }
    const SleepOrder order = std::move(orders_.front());
    orders_.pop_front();
    SleepOutcome outcome;
    try {
      if (sleep_ == nullptr)
        throw Error({.doing = "change the sleep of the engine", .detail = "this loop offers none"});
      outcome.change = obey(*sleep_, order);
    } catch (const std::exception& error) {
      outcome = {.end = SleepEnd::failed, .problem = error.what()};
    }
    metrics_.see(engine);
    tell(order, std::move(outcome));
  }
  cancelled_for_sleep_ = false;
}

void EngineLoop::abort_for_sleep(Engine& engine) {
  const bool aborts = std::ranges::any_of(orders_, [](const SleepOrder& order) { return order.aborts; });
  if (aborts && !std::exchange(cancelled_for_sleep_, true)) cancel_open(engine, {}, true);
}

// The listener finds admission and level changed already.
void EngineLoop::tell(const SleepOrder& order, SleepOutcome outcome) {
  outcome.level = sleep_ == nullptr ? SleepLevel::awake : sleep_->level();
  metrics_.slept(outcome.level);
  {
    const std::lock_guard lock(mutex_);
    sleep_level_ = outcome.level;
    rests_ = outcome.level != SleepLevel::awake || std::ranges::any_of(orders_, is_sleep) ||
             std::ranges::any_of(new_orders_, is_sleep);
  }
  order.told(outcome);
}

// The loop has ended, and takes no more.
void EngineLoop::refuse_orders() {
  {
    const std::lock_guard lock(mutex_);
    std::ranges::move(std::exchange(new_orders_, {}), std::back_inserter(orders_));
  }
  for (const SleepOrder& order : std::exchange(orders_, {})) tell(order, {.end = SleepEnd::not_now});
  std::vector<AdapterOrder> adapters;
  {
    const std::lock_guard lock(mutex_);
    adapters.swap(adapter_orders_);
  }
  for (const AdapterOrder& order : adapters) order.told("the server takes no more calls");
}

}  // namespace nodewright
