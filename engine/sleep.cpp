#include "engine/sleep.h"

#include <chrono>
#include <exception>

#include "graph/timing/stopwatch.h"
#include "runtime/error.h"

namespace nodewright {

// A device that is lost says so to every call: then nothing is to be tried again.
uint64_t EngineSleep::free_bytes() {
  try {
    uint64_t bytes = 0;
    for (size_t rank = 0; rank < engine_.slots().ranks(); ++rank) bytes += engine_.slots().device_of(rank).free_bytes();
    return bytes;
  } catch (const Error& error) {
    engine_.fail(error.what());
    throw;
  }
}

template <class Change>
SleepChange EngineSleep::measured(const Change& change) {
  const auto start = std::chrono::steady_clock::now();
  SleepChange done{.free_before = free_bytes()};
  change(done);
  done.free_after = free_bytes();
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return done;
}

SleepChange EngineSleep::sleep(SleepLevel level) {
  if (level == SleepLevel::awake)
    throw Error(
        {.doing = "put the engine to sleep", .detail = "the level is 0, expected 1 or 2", .fault = Fault::usage});
  return measured([&](SleepChange& change) {
    const bool was_on_device = is_on_device();
    Stopwatch watch;
    const auto note = [&](const char* part) {
      if (was_on_device) change.parts.push_back({part, watch.lap_ms() / 1e3});
    };
    try {
      // First what may fail, while all is as it was.
      if (level_ == SleepLevel::awake && level == SleepLevel::weights_on_host)
        for (DecoderModel& model : models_) model.copy_to_host();
      note("copy_weights");
      engine_.sleep();
      note("free_engine");
    } catch (const std::exception& error) {
      if (level_ == SleepLevel::awake)
        for (DecoderModel& model : models_) model.forget_copy();
      fail_to("put the engine to sleep", error.what(), "");
    }
    if (level_ < level) level_ = level;
    for (DecoderModel& model : models_) {
      model.leave_device();
      if (level_ == SleepLevel::weights_dropped) model.forget_copy();
    }
    note("free_weights");
  });
}

SleepChange EngineSleep::wake() {
  return measured([&](SleepChange& change) { bring_back(true, change); });
}

SleepChange EngineSleep::wake_weights() {
  return measured([&](SleepChange& change) { bring_back(false, change); });
}

void EngineSleep::bring_back(bool engine_too, SleepChange& change) {
  if (level_ == SleepLevel::awake) return;
  const bool were_back = is_on_device();
  Stopwatch watch;
  const auto note = [&](const char* part, double ms) { change.parts.push_back({part, ms / 1e3}); };
  try {
    for (DecoderModel& model : models_) model.return_to_device();
    note("take_weights", watch.lap_ms());
    if (!engine_too) {
      for (const DecoderModel& model : models_) model.wait();
      return note("await_weights", watch.lap_ms());
    }
    engine_.wake();  // builds while they travel, and waits for them
    const double waited_ms = engine_.slots().built().waited_ms;
    note("build_engine", watch.lap_ms() - waited_ms);
    note("await_weights", waited_ms);
  } catch (const std::exception& error) {
    if (!were_back)
      for (DecoderModel& model : models_) model.leave_device();
    fail_to("wake the engine", error.what(), "make room for it, and wake it again: it sleeps on");
  }
  for (DecoderModel& model : models_) model.begin_forget_copy();
  level_ = SleepLevel::awake;
}

void EngineSleep::fail_to(const char* doing, const std::string& why, const char* advice) {
  free_bytes();  // throws where the device is lost
  throw Error({.doing = doing, .detail = why, .advice = advice});
}

}  // namespace nodewright
