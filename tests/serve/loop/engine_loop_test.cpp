// The engine's thread behind its queue, on the CPU driver: every accepted output ends once, however it is cancelled,
// whatever fails, and nothing is left over.
#include "serve/loop/engine_loop.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

// Keeps what is delivered. The delivery thread's own until the loop is gone.
class KeepingListener : public Listener {
 public:
  explicit KeepingListener(int outputs)
      : tokens_(static_cast<size_t>(outputs)), ends_(static_cast<size_t>(outputs)), scored_(ends_.size(), 0) {}

  void refused(const std::string& reason) override { refusals.push_back(reason); }
  void updated(std::vector<OutputUpdate> updates) override {
    for (OutputUpdate& update : updates) {
      const auto i = static_cast<size_t>(update.index);
      EXPECT_TRUE(ends_.at(i).empty()) << "output " << i << " was told of after its end";
      tokens_[i].insert(tokens_[i].end(), update.tokens.begin(), update.tokens.end());
      scored_[i] += update.prompt_logprobs.size();
      if (update.end) ends_[i].push_back(*update.end);
    }
    if (on_update) on_update();
  }

  // That each output has one end, whose tokens are those that were told; or that all were refused.
  void expect_told() const {
    for (size_t i = 0; i < ends_.size(); ++i) {
      if (!refusals.empty()) {
        EXPECT_TRUE(ends_[i].empty());
        continue;
      }
      ASSERT_EQ(ends_[i].size(), 1u) << "output " << i;
      EXPECT_EQ(ends_[i][0].outputs, tokens_[i]);
    }
  }
  const std::vector<Resolution>& ends(size_t output = 0) const { return ends_[output]; }

  size_t scored(size_t output) const { return scored_[output]; }  // tokens of its prompt

  std::vector<std::string> refusals;
  std::function<void()> on_update;

 private:
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<std::vector<Resolution>> ends_;
  std::vector<size_t> scored_;
};

class EngineLoopOnCpuDriver : public testing::Test {
 protected:
  Submission submission(const std::shared_ptr<KeepingListener>& listener, size_t prompt, int64_t most, int n = 1,
                        uint64_t salt = 0) const {
    Submission submission{.listener = listener};
    submission.asked.spec = {.prompt = test::some_tokens(prompt, loaded_.vocab(), salt), .max_tokens = most};
    for (int k = 0; k < n; ++k) submission.asked.outputs.emplace_back();
    return submission;
  }
  EngineLoop::Submitted submit(EngineLoop& loop, Submission one) {
    std::vector<Submission> all;
    all.push_back(std::move(one));
    return loop.submit(std::move(all));
  }
  std::unique_ptr<Engine> engine() {
    return std::make_unique<Engine>(
        loaded_.device, loaded_.kernels, loaded_.model,
        EngineOptions{.max_batch = 4, .max_context = 128, .reserve = Reserve::prompt, .choices = true});
  }

  test::LoadedModel loaded_{"llama/odd_sizes", "cpu", Observe::yes};
  ServeMetrics metrics_{"golden"};
};

// Clients that submit and cancel at random, from four threads.
TEST_F(EngineLoopOnCpuDriver, EveryOutputOfManyClientsEndsOnce) {
  constexpr int kThreads = 4, kCalls = 40;
  const auto engine = this->engine();
  std::vector<std::vector<std::shared_ptr<KeepingListener>>> listeners(kThreads);
  {
    EngineLoop loop(metrics_, {});
    loop.accept();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        const auto below = [&](unsigned n) { return random() % n; };
        while (loop.admission() == Admission::loading) std::this_thread::yield();
        for (int i = 0; i < kCalls; ++i) {
          const int n = 1 + static_cast<int>(below(3));
          const auto listener = std::make_shared<KeepingListener>(n);
          listeners[static_cast<size_t>(t)].push_back(listener);
          const auto [admission, ticket] = submit(loop, submission(listener, 1 + below(20), 1 + below(8), n, random()));
          EXPECT_EQ(admission, Admission::accepted);
          if (below(3) == 0) loop.cancel(ticket);
          if (below(4) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(below(20)));
        }
        loop.cancel(EngineLoop::Ticket{1} << 40);  // nobody's
      });
    std::thread drain([&] {
      for (std::thread& thread : threads) thread.join();
      loop.drain();
    });
    loop.run(*engine);
    drain.join();
    EXPECT_EQ(loop.open(), 0u);
    EXPECT_EQ(loop.admission(), Admission::draining);
  }
  int cancelled = 0, whole = 0;
  for (const auto& of_thread : listeners)
    for (const auto& listener : of_thread) {
      listener->expect_told();
      ++(listener->ends().at(0).reason == EndReason::cancelled ? cancelled : whole);
    }
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(whole, kThreads * kCalls / 2);
  EXPECT_EQ(engine->pipeline().pool().owned_pages(), 0);
  engine->pipeline().check();
  expect_words(metrics_.text(), {R"(vllm:num_requests_running{model_name="golden",engine="0"} 0)",
                                 R"(finished_reason="abort"} )", "vllm:time_to_first_token_seconds_bucket"});
}

TEST_F(EngineLoopOnCpuDriver, WhatItCannotTakeIsTold) {
  const auto engine = this->engine();
  const auto listener = std::make_shared<KeepingListener>(2), long_prompt = std::make_shared<KeepingListener>(2);
  {
    EngineLoop loop(metrics_, {.most_open = 2});
    EXPECT_EQ(submit(loop, submission(listener, 3, 2)).admission, Admission::loading);
    loop.accept();
    std::thread client([&] {
      while (loop.admission() == Admission::loading) std::this_thread::yield();
      EXPECT_EQ(submit(loop, submission(listener, 3, 4, 3)).admission, Admission::full);
      EXPECT_EQ(submit(loop, submission(long_prompt, 200, 4, 2)).admission, Admission::accepted);
      while (loop.open() > 0) std::this_thread::yield();
      EXPECT_EQ(submit(loop, submission(listener, 3, 4, 2)).admission, Admission::accepted);
      loop.drain();
      EXPECT_EQ(submit(loop, submission(listener, 3, 4)).admission, Admission::draining);
    });
    loop.run(*engine);
    client.join();
  }
  listener->expect_told();
  EXPECT_EQ(listener->ends().at(0).reason, EndReason::length);
  ASSERT_FALSE(long_prompt->refusals.empty());
  expect_words(long_prompt->refusals[0], {"200", "128"});
}

// The outputs of a prompt share its computation also where its tokens are scored.
TEST_F(EngineLoopOnCpuDriver, APromptOfManyOutputsIsScoredOnce) {
  constexpr int kOutputs = 4;  // all run beside the first
  constexpr size_t kPrompt = 40;
  const auto engine = this->engine();
  const auto listener = std::make_shared<KeepingListener>(kOutputs);
  {
    EngineLoop loop(metrics_, {});
    loop.accept();
    Submission one = submission(listener, kPrompt, 2, kOutputs);
    for (AskedOutput& output : one.asked.outputs) output.choice.options.prompt_logprobs = 1;
    submit(loop, std::move(one));
    loop.drain();
    loop.run(*engine);
  }
  listener->expect_told();
  EXPECT_EQ(listener->scored(0), kPrompt - 1);
  for (size_t output = 1; output < kOutputs; ++output) EXPECT_EQ(listener->scored(output), 0u);
  EXPECT_LT(engine->stats().prompt_tokens, 2 * static_cast<int64_t>(kPrompt));
}

TEST_F(EngineLoopOnCpuDriver, AnAbortCancelsWhatIsOpen) {
  const auto engine = this->engine();
  const auto listener = std::make_shared<KeepingListener>(3);
  {
    EngineLoop loop(metrics_, {});
    loop.accept();
    listener->on_update = [&] { loop.abort(); };
    std::thread client([&] {
      while (loop.admission() == Admission::loading) std::this_thread::yield();
      submit(loop, submission(listener, 3, 100, 3));
    });
    loop.run(*engine);
    client.join();
  }
  listener->expect_told();
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(listener->ends(k).at(0).reason, EndReason::cancelled);
    EXPECT_LT(listener->ends(k).at(0).outputs.size(), 100u);
  }
  EXPECT_EQ(engine->pipeline().pool().owned_pages(), 0);
}

TEST_F(EngineLoopOnCpuDriver, AFailedCallOfTheDriverEndsEveryOutputAndTheLoop) {
  const auto engine = this->engine();
  const auto runs = std::make_shared<KeepingListener>(2), late = std::make_shared<KeepingListener>(1);
  std::string message;
  {
    EngineLoop loop(metrics_, {});
    loop.accept();
    runs->on_update = [&, told = false]() mutable {
      if (!std::exchange(told, true)) loaded_.opened.interposer->fail_from(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    };
    std::thread client([&] {
      while (loop.admission() == Admission::loading) std::this_thread::yield();
      submit(loop, submission(runs, 3, 100, 2));
      while (loop.admission() != Admission::failed) std::this_thread::yield();
      EXPECT_EQ(submit(loop, submission(late, 3, 4)).admission, Admission::failed);
    });
    message = error_of([&] { loop.run(*engine); });
    client.join();
    loaded_.opened.interposer->fail_none();
  }
  expect_words(message, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  runs->expect_told();
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(runs->ends(k).at(0).reason, EndReason::failed);
    expect_words(runs->ends(k).at(0).message, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  }
  EXPECT_TRUE(late->ends().empty());
}

// Calls that the failure finds in the queue are failed, too: the engine has not refused them.
TEST_F(EngineLoopOnCpuDriver, AFailureEndsCallsThatTheEngineHasNotSeen) {
  const auto engine = this->engine();
  const auto runs = std::make_shared<KeepingListener>(1);
  std::vector<std::shared_ptr<KeepingListener>> queued;
  {
    EngineLoop loop(metrics_, {});
    loop.accept();
    std::thread client([&] {
      while (loop.admission() == Admission::loading) std::this_thread::yield();
      submit(loop, submission(runs, 3, 100));
      for (Admission admission = Admission::accepted; admission != Admission::failed;) {
        const auto listener = std::make_shared<KeepingListener>(2);
        admission = submit(loop, submission(listener, 3, 100, 2)).admission;
        if (admission == Admission::accepted) queued.push_back(listener);
        if (queued.size() == 3) loaded_.opened.interposer->fail_from(0, CUDA_ERROR_ILLEGAL_ADDRESS);
      }
    });
    EXPECT_NE(error_of([&] { loop.run(*engine); }), "");
    client.join();
    loaded_.opened.interposer->fail_none();
    EXPECT_EQ(loop.open(), 0u);
  }
  for (const auto& listener : queued) {
    EXPECT_TRUE(listener->refusals.empty()) << listener->refusals[0];
    listener->expect_told();
    EXPECT_EQ(listener->ends(1).at(0).reason, EndReason::failed);
  }
  const std::string ended = R"(finished_reason="error"} )" + std::to_string(1 + 2 * queued.size());
  expect_words(metrics_.text(), {ended});
}

// Somebody else knows that the engine cannot go on: a rank in another process has left, while requests are open or
// none.
TEST_F(EngineLoopOnCpuDriver, AReasonFromAnotherThreadFailsWhatIsOpenAndAnIdleLoop) {
  for (const bool is_open : {true, false}) {
    const auto engine = this->engine();
    const auto runs = std::make_shared<KeepingListener>(1);
    EngineLoop loop(metrics_, {});
    loop.accept();
    if (is_open) submit(loop, submission(runs, 3, 100));
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      loop.fail("rank 1 has left");
    });
    expect_words(error_of([&] { loop.run(*engine); }), {"cannot serve", "rank 1 has left"});
    other.join();
    EXPECT_EQ(loop.admission(), Admission::failed);
    if (!is_open) continue;
    runs->expect_told();
    EXPECT_EQ(runs->ends(0).at(0).reason, EndReason::failed);
    expect_words(runs->ends(0).at(0).message, {"rank 1 has left"});
  }
}

// What a listener refers to may go once run() has returned.
TEST_F(EngineLoopOnCpuDriver, EveryListenerHasBeenToldWhenTheLoopReturns) {
  const auto engine = this->engine();
  const auto slow = std::make_shared<KeepingListener>(1);
  slow->on_update = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  EngineLoop loop(metrics_, {});
  loop.accept();
  std::thread client([&] {
    while (loop.admission() == Admission::loading) std::this_thread::yield();
    submit(loop, submission(slow, 3, 8));
    loop.drain();
  });
  loop.run(*engine);
  client.join();
  slow->expect_told();
  EXPECT_EQ(slow.use_count(), 1) << "the loop still has it";
}

}  // namespace
}  // namespace nodewright
