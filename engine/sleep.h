// An engine and its weights, asleep together: the device memory of both is free for others, and the process stays, with
// its kernels loaded. Level 1 keeps the weights in pinned host memory, level 2 drops them and reads the checkpoint
// again. Where several devices share the model all of them sleep, or none.
//
//   EngineSleep sleep(engine, model);
//   sleep.sleep(SleepLevel::weights_on_host);     no request is open
//   sleep.wake();                                 the same tokens as before
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/decoder_model.h"

namespace nodewright {

// In the order of what they give up. The numbers are vLLM's levels.
enum class SleepLevel : uint8_t { awake = 0, weights_on_host = 1, weights_dropped = 2 };

// What a change did to the device's memory, other processes' changes included, and where its time went.
struct SleepChange {
  struct Part {
    std::string name;  // "copy_weights", "free_engine", "free_weights"; "take_weights", "build_engine", "await_weights"
    double seconds = 0;
  };
  uint64_t free_before = 0, free_after = 0;  // bytes of all devices of the engine, as the driver says
  double seconds = 0;                        // all of it
  std::vector<Part> parts;                   // in their order; empty where nothing changed
};

// On the engine's thread.
class EngineSleep {
 public:
  // `engine` was made of `models`, by rank the parts of one; all must outlive this.
  EngineSleep(Engine& engine, std::span<DecoderModel> models) : engine_(engine), models_(models) {}
  EngineSleep(Engine& engine, DecoderModel& model) : EngineSleep(engine, {&model, 1}) {}

  // Frees the weights, the cache with what it holds, activations and graphs. Asleep already, it goes on to a level that
  // gives up more, and otherwise changes nothing. Throws Error where a request is admitted or host memory is short;
  // then the engine is as it was. `level` is 1 or 2.
  SleepChange sleep(SleepLevel level);
  // Takes the memory again, with as many pages as before; the host's copy is freed after it. Awake already, it changes
  // nothing. Throws Error where memory
  // is short or the checkpoint cannot be read; then the engine sleeps on and may be woken again.
  SleepChange wake();
  // The weights alone, so that their memory is taken before the cache's; the engine sleeps on. Errors as wake().
  SleepChange wake_weights();

  SleepLevel level() const { return level_; }

 private:
  template <class Change>
  SleepChange measured(const Change& change);
  uint64_t free_bytes();
  void bring_back(bool engine_too, SleepChange& change);
  bool is_on_device() const { return models_.front().is_on_device(); }  // as all of them
  [[noreturn]] void fail_to(const char* doing, const std::string& why, const char* advice);

  Engine& engine_;
  std::span<DecoderModel> models_;
  SleepLevel level_ = SleepLevel::awake;
};

}  // namespace nodewright
