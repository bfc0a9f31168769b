// Two engines behind one queue, on two devices of the CPU driver: where requests go, that none waits beside an idle
// replica, and how calls, drains and lost devices end.
#include "serve/replicas/replicas.h"

#include <gtest/gtest.h>

#include "tests/serve/replicas/two_engines.h"
#include "tests/support/error_text.h"

namespace nodewright::test {
namespace {

// Each prompt's tokens, of all that were asked for at once.
std::vector<std::vector<int32_t>> answers_of(TwoEngines& engines) {
  std::vector<std::shared_ptr<EndsListener>> listeners;
  for (uint64_t i = 0; i < 12; ++i) listeners.push_back(engines.begin(3 + 11 * i, 6 + static_cast<int64_t>(i % 3), i));
  std::vector<std::vector<int32_t>> answers;
  for (const auto& listener : listeners) {
    const Resolution end = listener->end();
    EXPECT_EQ(end.reason, EndReason::length) << end.message;
    answers.push_back(end.outputs);
  }
  return answers;
}

TEST(ReplicasOnCpuDriver, GiveTheAnswersOfOne) {
  std::vector<std::vector<int32_t>> alone;
  {
    TwoEngines one(TwoEngines::usual_engine(), 4096, "llama/odd_sizes", 1);
    alone = answers_of(one);
  }
  TwoEngines two;
  EXPECT_EQ(answers_of(two), alone);
  EXPECT_GT(two.ended_on(0), 0u);
  EXPECT_GT(two.ended_on(1), 0u);
}

TEST(ReplicasOnCpuDriver, SendARequestToTheOneWithTheFewestTokensBefore) {
  TwoEngines engines;
  const auto first = engines.begin(8, 400), second = engines.begin(8, 100, 1);  // 0, then 1, which has nothing
  const auto third = engines.begin(8, 10, 2);                                   // 1: 108 tokens at most, not 408
  EXPECT_EQ(third->end().reason, EndReason::length);
  EXPECT_EQ(second->end().reason, EndReason::length);
  EXPECT_EQ(first->end().reason, EndReason::length);
  EXPECT_EQ(engines.ended_on(0), 1u);
  EXPECT_EQ(engines.ended_on(1), 2u);
}

TEST(ReplicasOnCpuDriver, LetNobodyWaitBesideAnIdleReplica) {
  EngineOptions options = TwoEngines::usual_engine();
  options.max_batch = 1;
  TwoEngines engines(options);
  const auto long_one = engines.begin(8, 450);
  ASSERT_TRUE(long_one->wait_begun());
  std::vector<std::shared_ptr<EndsListener>> others;
  for (uint64_t i = 1; i <= 6; ++i) others.push_back(engines.begin(4, 3, i));
  EXPECT_GT(engines.replicas.queued(), 0u);
  for (const auto& one : others) EXPECT_EQ(one->end().reason, EndReason::length);
  EXPECT_EQ(engines.ended_on(1), 6u) << "all passed by the replica that is busy";
  EXPECT_EQ(engines.ended_on(0), 0u);
  EXPECT_EQ(engines.replicas.queued(), 0u);
  const std::vector<TwoEngines::Ended> ended = engines.ended();
  for (size_t i = 1; i < ended.size(); ++i) EXPECT_LE(ended[i - 1].output.arrived, ended[i].output.arrived);
  EXPECT_EQ(long_one->end().outputs.size(), 450u);
}

// Both replicas are busy while a call of ten prompts comes, and then one of another client and one of the same.
TEST(ReplicasOnCpuDriver, CallsInTheQueueTakeTurns) {
  EngineOptions options = TwoEngines::usual_engine();
  options.max_batch = 1;
  TwoEngines engines(options);
  const auto first = engines.begin(8, 450), second = engines.begin(8, 450, 1);
  ASSERT_TRUE(first->wait_begun());
  ASSERT_TRUE(second->wait_begun());
  constexpr size_t kPrompts = 10;
  const auto large = std::make_shared<EndsListener>(kPrompts);
  std::vector<Submission> call;
  for (size_t i = 0; i < kPrompts; ++i) {
    call.push_back(engines.submission(large, 4, 3, 10 + i));
    call.back().first_index = static_cast<int>(i);
    call.back().client = 1;
  }
  EXPECT_EQ(engines.replicas.submit(std::move(call)).admission, Admission::accepted);
  const auto large_arrived = std::chrono::steady_clock::now();
  const auto other = std::make_shared<EndsListener>(), same = std::make_shared<EndsListener>();
  for (const auto& [listener, client] : {std::pair{same, uint64_t{1}}, std::pair{other, uint64_t{2}}}) {
    Submission one = engines.submission(listener, 4, 3, 30 + client);
    one.client = client;
    EXPECT_EQ(engines.submit(std::move(one)).admission, Admission::accepted);
  }
  EXPECT_EQ(engines.replicas.queued(), kPrompts + 2);
  for (size_t i = 0; i < kPrompts; ++i) EXPECT_EQ(large->end(i).reason, EndReason::length);
  EXPECT_EQ(same->end().reason, EndReason::length);
  EXPECT_EQ(other->end().reason, EndReason::length);
  EXPECT_EQ(first->end().reason, EndReason::length);
  EXPECT_EQ(second->end().reason, EndReason::length);
  std::vector<size_t> places;  // of the late ones among those that waited
  size_t place = 0;
  for (const TwoEngines::Ended& one : engines.ended()) {
    if (one.output.tokens != 3) continue;
    if (one.output.arrived > large_arrived) places.push_back(place);
    ++place;
  }
  ASSERT_EQ(places.size(), 2u);
  EXPECT_LT(places.back(), 6u) << "after the ten";
}

TEST(ReplicasOnCpuDriver, PreferTheReplicaThatHasTheBeginning) {
  TwoEngines engines;
  const auto long_one = engines.begin(8, 60, 9);  // 0
  const auto prompt = engines.begin(300, 2, 5);   // 1, where four pages of it stay
  EXPECT_EQ(prompt->end().reason, EndReason::length);
  EXPECT_EQ(long_one->end().reason, EndReason::length);
  const auto again = engines.begin(300, 2, 5);  // both are idle, and 0 has the lower number
  EXPECT_GE(again->end().found_tokens, 256);
  EXPECT_EQ(engines.ended_on(1), 2u);
}

TEST(ReplicasOnCpuDriver, SpreadThePromptsOfACallAndKeepTheOutputsOfOneTogether) {
  TwoEngines engines;
  const auto listener = std::make_shared<EndsListener>(6);
  std::vector<Submission> call;
  for (int i = 0; i < 3; ++i) {
    call.push_back(engines.submission(listener, 5, 20, static_cast<uint64_t>(i), 2));
    call.back().first_index = 2 * i;
  }
  EXPECT_EQ(engines.replicas.submit(std::move(call)).admission, Admission::accepted);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(listener->end(i).outputs.size(), 20u);
  EXPECT_EQ(engines.ended_on(0) % 2, 0u);
  EXPECT_GT(engines.ended_on(0), 0u);
  EXPECT_GT(engines.ended_on(1), 0u);
}

TEST(ReplicasOnCpuDriver, CancelWhatRunsAndWhatWaits) {
  EngineOptions options = TwoEngines::usual_engine();
  options.max_batch = 1;
  TwoEngines engines(options, 3);
  const auto running = std::make_shared<EndsListener>(), waiting = std::make_shared<EndsListener>();
  const auto [admission, ticket] = engines.submit(engines.submission(running, 4, 450));
  EXPECT_EQ(admission, Admission::accepted);
  const auto other = engines.begin(4, 450, 1);
  const auto queued = engines.submit(engines.submission(waiting, 4, 450, 2));
  EXPECT_EQ(queued.admission, Admission::accepted);
  EXPECT_EQ(engines.replicas.queued(), 1u);
  EXPECT_EQ(engines.submit(engines.submission(waiting, 4, 4)).admission, Admission::full) << "of all together";
  EXPECT_EQ(engines.replicas.open(), 3u);
  engines.replicas.cancel(queued.ticket);
  EXPECT_EQ(waiting->end().reason, EndReason::cancelled);
  EXPECT_EQ(engines.replicas.open(), 2u);
  engines.replicas.cancel(ticket);
  EXPECT_EQ(running->end().reason, EndReason::cancelled);
  EXPECT_FALSE(other->end().outputs.size() < 450u) << "nobody cancelled it";
  expect_words(engines.replicas.metrics_text(), {R"(finished_reason="abort"} 2)"});
}

TEST(ReplicasOnCpuDriver, ALostDeviceEndsItsOwnRequestsAndTheOthersGoOn) {
  EngineOptions options = TwoEngines::usual_engine();
  options.max_batch = 1;
  TwoEngines engines(options);
  engines.lose(0);
  const auto lost = engines.begin(4, 450), kept = engines.begin(4, 100, 1), waiting = engines.begin(4, 4, 2);
  const Resolution end = lost->end();
  EXPECT_EQ(end.reason, EndReason::failed);
  expect_words(end.message, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  EXPECT_EQ(kept->end().outputs.size(), 100u);
  EXPECT_EQ(waiting->end().reason, EndReason::length);
  EXPECT_EQ(engines.replicas.admission(), Admission::accepted);
  const std::vector<ReplicaState> states = engines.replicas.states();
  EXPECT_EQ(states[0].admission, Admission::failed);
  expect_words(states[0].failure, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  EXPECT_EQ(states[1].admission, Admission::accepted);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(engines.begin(4, 2, i)->end().reason, EndReason::length);
  engines.lose(1);
  const auto last = engines.begin(4, 450, 3), never = std::make_shared<EndsListener>();
  if (engines.submit(engines.submission(never, 4, 4, 4)).admission != Admission::accepted) never->refused("ILLEGAL");
  for (const auto& one : {last, never}) expect_words(one->end().message, {"ILLEGAL"});
  engines.join();
  EXPECT_EQ(engines.replicas.admission(), Admission::failed);
  EXPECT_EQ(engines.replicas.open(), 0u);
  EXPECT_EQ(engines.submit(engines.submission(never, 4, 4)).admission, Admission::failed);
  expect_words(engines.failures[1], {"CUDA_ERROR_ILLEGAL_ADDRESS"});
}

TEST(ReplicasOnCpuDriver, WhatALostDeviceHadNotSeenGoesToTheOthers) {
  TwoEngines engines;
  engines.hold(0);
  const auto seen = engines.begin(4, 4);
  while (!engines.lost.holds()) std::this_thread::yield();
  const auto long_one = engines.begin(4, 450, 1);  // 1
  const auto unseen = engines.begin(4, 20, 2);     // 0, which has fewer tokens before it
  EXPECT_EQ(engines.replicas.loop(0).open(), 2u);
  engines.lose(0);
  expect_words(seen->end().message, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  EXPECT_EQ(unseen->end().outputs.size(), 20u);
  EXPECT_EQ(long_one->end().outputs.size(), 450u);
  EXPECT_EQ(engines.replicas.open(), 0u);
  EXPECT_EQ(engines.replicas.queued(), 0u);
}

TEST(ReplicasOnCpuDriver, WhatALostDeviceHadNotSeenEndsWhereADrainHasBegun) {
  TwoEngines engines;
  engines.hold(0);
  const auto seen = engines.begin(4, 4);
  while (!engines.lost.holds()) std::this_thread::yield();
  const auto long_one = engines.begin(4, 450, 1), unseen = engines.begin(4, 20, 2);
  engines.replicas.drain();
  engines.lose(0);
  for (const auto& one : {seen, unseen}) expect_words(one->end().message, {"CUDA_ERROR_ILLEGAL_ADDRESS"});
  EXPECT_EQ(long_one->end().outputs.size(), 450u);
  engines.join();
  EXPECT_EQ(engines.replicas.open(), 0u);
}

TEST(ReplicasOnCpuDriver, ADrainEndsWhatRunsAndWhatWaits) {
  TwoEngines engines;
  std::vector<std::shared_ptr<EndsListener>> all;
  for (uint64_t i = 0; i < 9; ++i) all.push_back(engines.begin(4, 20, i));
  engines.replicas.drain();
  EXPECT_EQ(engines.replicas.admission(), Admission::draining);
  engines.join();
  for (const auto& one : all) EXPECT_EQ(one->end().outputs.size(), 20u);
  EXPECT_EQ(engines.owned_pages, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(engines.failures, (std::vector<std::string>{"", ""}));
}

TEST(ReplicasOnCpuDriver, AnAbortCancelsWhatRunsAndWhatWaits) {
  TwoEngines engines;
  std::vector<std::shared_ptr<EndsListener>> all;
  for (uint64_t i = 0; i < 9; ++i) all.push_back(engines.begin(4, 450, i));
  engines.replicas.abort();
  engines.join();
  for (const auto& one : all) EXPECT_EQ(one->end().reason, EndReason::cancelled);
  EXPECT_EQ(engines.replicas.open(), 0u);
}

TEST(ReplicasOnCpuDriver, MetricsHaveTheNumberOfTheEngine) {
  TwoEngines engines;
  const auto first = engines.begin(4, 8), second = engines.begin(4, 8, 1);
  EXPECT_EQ(first->end().outputs.size() + second->end().outputs.size(), 16u);
  const std::string text = engines.replicas.metrics_text();
  expect_words(text, {R"(vllm:generation_tokens_total{model_name="golden",engine="0"} 8)",
                      R"(vllm:generation_tokens_total{model_name="golden",engine="1"} 8)",
                      R"(nodewright_requests_queued{model_name="golden",engine="0"} 0)"});
  const std::string help = "# HELP vllm:generation_tokens_total ";
  EXPECT_NE(text.find(help), std::string::npos);
  EXPECT_EQ(text.find(help, text.find(help) + 1), std::string::npos) << "each name once";
}

}  // namespace
}  // namespace nodewright::test
