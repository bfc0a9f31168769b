// Two replicas on two devices of the CPU driver, each engine on a thread of its own, and the answers that their clients
// get.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "serve/replicas/replicas.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

constexpr std::chrono::seconds kReplicaPatience{600};

// The ends of a call's outputs, each once.
class EndsListener : public Listener {
 public:
  explicit EndsListener(size_t outputs = 1) : ends_(outputs) {}
  void refused(const std::string& reason) override {
    for (auto& end : ends_) end.set_value({.reason = EndReason::failed, .message = reason});
  }
  void updated(std::vector<OutputUpdate> updates) override {
    EXPECT_FALSE(inside_.exchange(true)) << "two threads at once";
    for (OutputUpdate& update : updates) {
      if (!update.tokens.empty()) has_begun = true;
      if (update.end) ends_.at(static_cast<size_t>(update.index)).set_value(std::move(*update.end));  // a second throws
    }
    inside_ = false;
  }
  Resolution end(size_t output = 0) {
    auto future = ends_.at(output).get_future();
    EXPECT_EQ(future.wait_for(kReplicaPatience), std::future_status::ready);
    return future.get();
  }
  bool wait_begun() const {
    const auto limit = std::chrono::steady_clock::now() + kReplicaPatience;
    while (!has_begun && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return has_begun;
  }

  std::atomic<bool> has_begun = false;

 private:
  std::vector<std::promise<Resolution>> ends_;
  std::atomic<bool> inside_ = false;
};

// From lose() on every call of one thread fails, as those of a device that is lost do: the next thing that its engine
// does. From hold() until then they do not return.
class LostDevice : public CallObserver {
 public:
  void lose(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    lost_.push_back(thread);
    held_ = {};
    freed_.notify_all();
  }
  void hold(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    held_ = thread;
  }
  bool holds() const { return holds_; }
  void find() {
    const std::lock_guard lock(mutex_);
    lost_.clear();
  }
  std::optional<CUresult> before(const DriverCall&) override {
    std::unique_lock lock(mutex_);
    if (held_ == std::this_thread::get_id()) {
      holds_ = true;
      freed_.wait(lock, [this] { return held_ != std::this_thread::get_id(); });
    }
    for (const std::thread::id thread : lost_)
      if (thread == std::this_thread::get_id()) return CUDA_ERROR_ILLEGAL_ADDRESS;
    return std::nullopt;
  }
  CUresult after(const DriverCall&, CUresult result) override { return result; }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::thread::id> lost_;
  std::thread::id held_;
  std::atomic<bool> holds_ = false;
};

class TwoEngines {
 public:
  struct Ended {
    size_t replica = 0;
    EndedOutput output;
  };

  explicit TwoEngines(EngineOptions engine = usual_engine(), size_t most_open = 4096,
                      const std::string& model = "llama/odd_sizes", size_t count = 2)
      : replicas("golden",
                 {.count = count, .most_open = most_open, .ended = [this](size_t replica, const EndedOutput& output) {
                    const std::lock_guard lock(mutex_);
                    ended_.push_back({replica, output});
                  }}) {
    driver->observe(&lost);
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([this, i, engine, model] { serve(i, engine, model); });
    for (size_t i = 0; i < count; ++i)
      while (!runs_[i]) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    replicas.accept();
    for (size_t i = 0; count > 1 && i < count; ++i)  // until it has told its rows
      while (replicas.loop(i).load().rows == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~TwoEngines() {
    replicas.abort();
    join();
    driver->observe(nullptr);
  }
  void join() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  void hold(size_t replica) { lost.hold(threads_[replica].get_id()); }
  void lose(size_t replica) { lost.lose(threads_[replica].get_id()); }

  static EngineOptions usual_engine() {
    return {.max_batch = 2,
            .max_context = 512,
            .reserve = Reserve::prompt,
            .choices = true,
            .numerics = Numerics::invariant};
  }
  static constexpr size_t kVocab = 64;  // less than any golden model's

  Submission submission(const std::shared_ptr<Listener>& listener, size_t prompt, int64_t most, uint64_t salt = 0,
                        size_t outputs = 1) const {
    Submission one{.listener = listener};
    one.asked.spec = {.prompt = some_tokens(prompt, kVocab, salt), .max_tokens = most};
    one.asked.outputs.resize(outputs);
    return one;
  }
  EngineLoop::Submitted submit(Submission one) {
    std::vector<Submission> all;
    all.push_back(std::move(one));
    return replicas.submit(std::move(all));
  }
  // With one output, which has been accepted.
  std::shared_ptr<EndsListener> begin(size_t prompt, int64_t most, uint64_t salt = 0) {
    const auto listener = std::make_shared<EndsListener>();
    EXPECT_EQ(submit(submission(listener, prompt, most, salt)).admission, Admission::accepted);
    return listener;
  }
  // Outputs that engines had, in the order of their ends.
  std::vector<Ended> ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  size_t ended_on(size_t replica) const {
    size_t count = 0;
    for (const Ended& one : ended()) count += one.replica == replica ? 1u : 0u;
    return count;
  }

  std::shared_ptr<Driver> driver = open_driver("cpu:devices=2");
  LostDevice lost;
  Replicas replicas;
  std::vector<std::string> failures{"", ""};
  std::vector<int64_t> owned_pages{-1, -1};  // when the loop had ended
  std::vector<Engine*> engines{nullptr, nullptr};

 private:
  void serve(size_t i, EngineOptions options, const std::string& model) {
    try {
      const OpenedDevice opened = open_device(driver, static_cast<int>(i));
      Stream stream(*opened.device, "compute");
      KernelCache kernels(*opened.device);
      DecoderModel loaded = DecoderModel::load(*opened.device, stream, golden_folder(model));
      options.pages_changed = [this, i](std::vector<PageEvent> events) { replicas.follow(i, events); };
      std::optional<Engine> engine(std::in_place, *opened.device, kernels, loaded, options);
      EngineSleep sleep(*engine, loaded);
      engines[i] = &*engine;
      runs_[i] = true;
      try {
        replicas.run(i, *engine, &sleep);
      } catch (const Error& error) {
        failures[i] = error.what();
      }
      lost.find();
      owned_pages[i] = engine->pipeline().pool().owned_pages();
      engine.reset();
      ++ended_engines_;
      while (ended_engines_ < replicas.count())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its images
    } catch (...) {
      ADD_FAILURE() << "an engine could not be made";
      std::abort();  // nobody would come
    }
  }

  mutable std::mutex mutex_;
  std::vector<Ended> ended_;
  std::array<std::atomic<bool>, 2> runs_{};
  std::atomic<size_t> ended_engines_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace nodewright::test
