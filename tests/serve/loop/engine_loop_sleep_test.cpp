// An engine loop that sleeps and wakes, on the CPU driver: what is open ends first or is cancelled, nothing is let in
// or lost, every order is answered once, and a caller that asks for two things at once gets one of them.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <random>
#include <thread>

#include "serve/loop/engine_loop.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

constexpr std::chrono::seconds kOrderPatience{600};  // until a test that hangs ends

// The end of a call with one output, once it is there.
class EndListener : public Listener {
 public:
  void refused(const std::string& reason) override { ADD_FAILURE() << reason; }
  void updated(std::vector<OutputUpdate> updates) override {
    for (OutputUpdate& update : updates)
      if (update.end) {
        is_whole = update.end->reason == EndReason::length;
        end_.set_value(std::move(*update.end));
      }
    has_begun = true;
  }
  Resolution end() {
    auto future = end_.get_future();
    EXPECT_EQ(future.wait_for(kOrderPatience), std::future_status::ready);
    return future.get();
  }

  std::atomic<bool> has_begun = false, is_whole = false;

 private:
  std::promise<Resolution> end_;  // a second end would throw
};

// An order, and what became of it.
struct Told {
  std::shared_ptr<std::promise<SleepOutcome>> promise = std::make_shared<std::promise<SleepOutcome>>();
  std::future<SleepOutcome> future = promise->get_future();

  bool is_there() { return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  SleepOutcome get() {
    EXPECT_EQ(future.wait_for(kOrderPatience), std::future_status::ready);
    return future.get();
  }
};

class LoopSleepOnCpuDriver : public testing::Test {
 protected:
  // Serves on a thread of its own.
  void SetUp() override {
    loop_.accept();
    thread_ = std::thread([this] {
      Engine engine(loaded_.device, loaded_.kernels, loaded_.model,
                    EngineOptions{.max_batch = 4, .max_context = 128, .reserve = Reserve::prompt, .choices = true});
      EngineSleep sleep(engine, loaded_.model);
      failure_ = error_of([&] { loop_.run(engine, &sleep); });
      loaded_.opened.interposer->fail_none();
      owned_pages_ = engine.pipeline().pool().owned_pages();
    });
  }
  void TearDown() override { finish(); }
  void finish() {
    loop_.drain();
    if (thread_.joinable()) thread_.join();
  }

  Admission submit(const std::shared_ptr<EndListener>& listener, int64_t most) {
    Submission submission{.listener = listener};
    submission.asked.spec = {.prompt = test::some_tokens(5, loaded_.vocab(), 1), .max_tokens = most};
    submission.asked.outputs.emplace_back();
    std::vector<Submission> all;
    all.push_back(std::move(submission));
    return loop_.submit(std::move(all)).admission;
  }
  // One whose first token is there.
  std::shared_ptr<EndListener> begun(int64_t most) {
    const auto listener = std::make_shared<EndListener>();
    EXPECT_EQ(submit(listener, most), Admission::accepted);
    while (!listener->has_begun) std::this_thread::yield();
    return listener;
  }
  std::vector<int32_t> served() {
    const auto listener = std::make_shared<EndListener>();
    EXPECT_EQ(submit(listener, 12), Admission::accepted);
    const Resolution end = listener->end();
    EXPECT_EQ(end.reason, EndReason::length) << end.message;
    return end.outputs;
  }

  Told order(SleepOrder order) {
    Told told;
    order.told = [promise = told.promise](const SleepOutcome& outcome) { promise->set_value(outcome); };
    loop_.order(std::move(order));
    return told;
  }
  Told sleep(SleepLevel level = SleepLevel::weights_on_host, bool aborts = false) {
    return order({.kind = SleepOrder::Kind::sleep, .level = level, .aborts = aborts});
  }
  Told wake() { return order({.kind = SleepOrder::Kind::wake}); }

  void expect_state(const char* state) {
    for (const std::string one : {"awake", "weights_offloaded", "discard_all"})
      expect_words(metrics_.text(), {R"(vllm:engine_sleep_state{model_name="golden",engine="0",sleep_state=")" + one +
                                     (one == state ? "\"} 1\n" : "\"} 0\n")});
  }

  test::LoadedModel loaded_{"llama/odd_sizes", "cpu:memory_mb=64", Observe::yes};
  ServeMetrics metrics_{"golden"};
  EngineLoop loop_{metrics_, {}};
  std::string failure_;
  int64_t owned_pages_ = -1;
  std::thread thread_;
};

TEST_F(LoopSleepOnCpuDriver, FreesItsMemoryRefusesCallsAndAnswersThemAsBeforeOnceItIsAwake) {
  const std::vector<int32_t> expected = served();
  expect_state("awake");
  for (const SleepLevel level : {SleepLevel::weights_on_host, SleepLevel::weights_dropped}) {
    const SleepOutcome slept = sleep(level).get();
    EXPECT_EQ(slept.end, SleepEnd::done) << slept.problem;
    EXPECT_EQ(slept.level, level);
    EXPECT_GT(slept.change.free_after, slept.change.free_before);
    EXPECT_EQ(loop_.admission(), Admission::asleep);
    EXPECT_EQ(loop_.sleep_level(), level);
    EXPECT_EQ(submit(std::make_shared<EndListener>(), 1), Admission::asleep);
    expect_state(level == SleepLevel::weights_on_host ? "weights_offloaded" : "discard_all");
    expect_words(metrics_.text(), {R"(nodewright_memory_bytes{model_name="golden",engine="0",use="weights"} 0)"});
    const SleepOutcome again = sleep(SleepLevel::weights_on_host).get();
    EXPECT_EQ(again.end, SleepEnd::done);
    EXPECT_EQ(again.level, level);
    for (int i = 0; i < 2; ++i) {
      const SleepOutcome woken = wake().get();
      EXPECT_EQ(woken.end, SleepEnd::done) << woken.problem;
      EXPECT_EQ(woken.level, SleepLevel::awake);
      EXPECT_EQ(loop_.admission(), Admission::accepted);
      EXPECT_EQ(loop_.sleep_level(), SleepLevel::awake);
    }
    expect_state("awake");
    EXPECT_EQ(served(), expected);
  }
}

TEST_F(LoopSleepOnCpuDriver, LetsWhatIsOpenEndFirst) {
  const auto open = begun(100);
  Told slept = sleep();
  EXPECT_EQ(loop_.admission(), Admission::asleep);
  EXPECT_EQ(loop_.sleep_level(), SleepLevel::awake);
  EXPECT_EQ(submit(std::make_shared<EndListener>(), 1), Admission::asleep);
  EXPECT_EQ(slept.get().end, SleepEnd::done);
  EXPECT_EQ(loop_.open(), 0u);
  const Resolution end = open->end();
  EXPECT_EQ(end.reason, EndReason::length);
  EXPECT_EQ(end.outputs.size(), 100u);
}

TEST_F(LoopSleepOnCpuDriver, CancelsWhatIsOpenWhereItIsToldTo) {
  const auto open = begun(100);
  Told patient = sleep();
  EXPECT_EQ(sleep(SleepLevel::weights_on_host, true).get().end, SleepEnd::done);
  EXPECT_EQ(patient.get().end, SleepEnd::done);
  const Resolution end = open->end();
  EXPECT_EQ(end.reason, EndReason::cancelled);
  EXPECT_EQ(end.message, "the engine is put to sleep");
  EXPECT_LT(end.outputs.size(), 100u);
  EXPECT_EQ(wake().get().end, SleepEnd::done);
  const auto later = begun(100);
  finish();
  EXPECT_EQ(later->end().reason, EndReason::length);
}

TEST_F(LoopSleepOnCpuDriver, IsCalledOffByAWakeWhileItWaits) {
  const auto open = begun(100);
  Told first = sleep(), second = sleep(SleepLevel::weights_dropped);
  EXPECT_EQ(wake().get().end, SleepEnd::done);
  EXPECT_EQ(first.get().end, SleepEnd::called_off);
  EXPECT_EQ(second.get().end, SleepEnd::called_off);
  EXPECT_EQ(loop_.admission(), Admission::accepted);
  EXPECT_EQ(served().size(), 12u);
  EXPECT_EQ(open->end().reason, EndReason::length);
}

TEST_F(LoopSleepOnCpuDriver, ADrainEndsWhatIsOpenAndASleepThatWaits) {
  const auto open = begun(100);
  Told slept = sleep();
  finish();
  EXPECT_EQ(slept.get().end, SleepEnd::not_now);
  EXPECT_EQ(sleep().get().end, SleepEnd::not_now);
  EXPECT_EQ(wake().get().end, SleepEnd::not_now);
  EXPECT_EQ(open->end().reason, EndReason::length);
  EXPECT_EQ(failure_, "");
}

TEST_F(LoopSleepOnCpuDriver, ADrainEndsASleepingLoop) {
  EXPECT_EQ(sleep().get().end, SleepEnd::done);
  finish();
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(owned_pages_, 0);
}

TEST_F(LoopSleepOnCpuDriver, AWakeThatFailsIsToldAndMayBeTriedAgain) {
  const std::vector<int32_t> expected = served();
  EXPECT_EQ(sleep().get().end, SleepEnd::done);
  {
    const DeviceBuffer taken(loaded_.device, "taken", loaded_.device.free_bytes());
    const SleepOutcome failed = wake().get();
    EXPECT_EQ(failed.end, SleepEnd::failed);
    EXPECT_EQ(failed.level, SleepLevel::weights_on_host);
    expect_words(failed.problem, {"wake the engine", "CUDA_ERROR_OUT_OF_MEMORY", "wake it again"});
    EXPECT_EQ(loop_.admission(), Admission::asleep);
  }
  EXPECT_EQ(wake().get().end, SleepEnd::done);
  EXPECT_EQ(served(), expected);
}

TEST_F(LoopSleepOnCpuDriver, ADeviceThatIsLostWhileItSleepsEndsTheLoopWithAFailure) {
  EXPECT_EQ(sleep().get().end, SleepEnd::done);
  loaded_.opened.interposer->fail_from(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_words(wake().get().problem, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  thread_.join();
  expect_words(failure_, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  EXPECT_EQ(loop_.admission(), Admission::failed);
  EXPECT_EQ(wake().get().end, SleepEnd::not_now);
}

// Clients submit whatever happens, while others put the engine to sleep and wake it: each accepted output has its end,
// each order is answered. The clients go on until one was refused by an engine that slept, and one served whole.
TEST_F(LoopSleepOnCpuDriver, LosesNothingWhoeverAsksForWhat) {
  constexpr int kOrders = 40;
  std::atomic<bool> goes_on = true;
  std::atomic<int> refused = 0, wakes = 0, whole = 0;
  std::vector<std::shared_ptr<EndListener>> accepted[2];
  std::vector<std::thread> clients;
  for (auto& own : accepted)
    clients.emplace_back([&] {
      for (std::mt19937 random(1); goes_on;) {
        const auto listener = std::make_shared<EndListener>();
        const Admission admission = submit(listener, 1 + random() % 20);
        if (admission == Admission::accepted) own.push_back(listener);
        if (admission == Admission::asleep) ++refused;
        for (const auto& one : own) whole += one->is_whole ? 1 : 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
      }
    });
  std::vector<Told> told[2];
  std::vector<std::thread> operators;
  for (size_t t = 0; t < 2; ++t)
    operators.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t) + 7);
      for (int i = 0; i < kOrders; ++i) {
        const auto level = random() % 2 == 0 ? SleepLevel::weights_on_host : SleepLevel::weights_dropped;
        const bool wakes_it = random() % 2 == 0, aborts = random() % 2 == 0;
        wakes += wakes_it ? 1 : 0;
        told[t].push_back(wakes_it ? wake() : sleep(level, aborts));
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
      }
    });
  for (std::thread& thread : operators) thread.join();
  EXPECT_EQ(sleep(SleepLevel::weights_on_host, true).get().end, SleepEnd::done);
  while (refused == 0) std::this_thread::yield();
  EXPECT_EQ(wake().get().end, SleepEnd::done);
  while (whole == 0) std::this_thread::yield();
  goes_on = false;
  for (std::thread& thread : clients) thread.join();
  EXPECT_EQ(served().size(), 12u);
  finish();
  std::map<SleepEnd, int> ends;
  for (std::vector<Told>& of_thread : told)
    for (Told& one : of_thread) ++ends[one.get().end];
  EXPECT_EQ(ends[SleepEnd::done] + ends[SleepEnd::called_off], 2 * kOrders);
  EXPECT_GE(ends[SleepEnd::done], wakes);
  for (const auto& of_client : accepted)
    for (const auto& listener : of_client) listener->end();
  EXPECT_EQ(loop_.open(), 0u);
  EXPECT_EQ(owned_pages_, 0);
}

}  // namespace
}  // namespace nodewright
