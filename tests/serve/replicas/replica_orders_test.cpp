// Orders that go to all replicas, on two devices of the CPU driver: adapters on all or none, sleep and wake.
#include <gtest/gtest.h>

#include "models/adapters/adapter_image.h"
#include "tests/serve/replicas/two_engines.h"
#include "tests/support/error_text.h"

namespace nodewright::test {
namespace {

EngineOptions engine_with_adapters() {
  EngineOptions options = TwoEngines::usual_engine();
  options.max_adapters = 2;
  return options;
}

class ReplicaAdaptersOnCpuDriver : public testing::Test {
 protected:
  std::string change(const std::string& name, bool loads) {
    const auto told = std::make_shared<std::promise<std::string>>();
    engines_.replicas.change(
        {name, loads ? image() : nullptr, [told](const std::string& why) { told->set_value(why); }});
    return told->get_future().get();
  }
  // Changes one replica alone.
  std::string change_one(size_t replica, const std::string& name, bool loads) {
    const auto told = std::make_shared<std::promise<std::string>>();
    engines_.replicas.loop(replica).change(
        {name, loads ? image() : nullptr, [told](const std::string& why) { told->set_value(why); }});
    return told->get_future().get();
  }
  std::shared_ptr<const AdapterImage> image() {
    return engines_.engines[1]->read_adapter(source_dir() / "tests/golden/adapters/llama_all");
  }
  std::vector<int32_t> tokens_on(size_t replica, const std::string& adapter) {
    const auto listener = std::make_shared<EndsListener>();
    std::vector<Submission> one;
    one.push_back(engines_.submission(listener, 6, 8));
    one.front().asked.spec.adapter = adapter;
    engines_.replicas.loop(replica).submit(std::move(one));
    return listener->end().outputs;
  }

  TwoEngines engines_{engine_with_adapters(), 4096, "llama/biases"};
};

TEST_F(ReplicaAdaptersOnCpuDriver, AreLoadedAndUnloadedOnAll) {
  EXPECT_EQ(change("own", true), "");
  const std::vector<int32_t> expected = tokens_on(0, "own");
  EXPECT_EQ(tokens_on(1, "own"), expected);
  EXPECT_NE(tokens_on(1, ""), expected);
  expect_words(change("own", true), {"own"});
  EXPECT_EQ(tokens_on(1, "own"), expected) << "what was there before stays";
  EXPECT_EQ(change("own", false), "");
  EXPECT_NE(change_one(0, "own", false), "") << "it is gone";
  EXPECT_NE(change_one(1, "own", false), "");
  EXPECT_NE(change("own", false), "");
}

TEST_F(ReplicaAdaptersOnCpuDriver, AreLoadedOnNoneWhereOneCannot) {
  EXPECT_EQ(change_one(1, "own", true), "");
  expect_words(change("own", true), {"own"});
  EXPECT_NE(change_one(0, "own", false), "") << "the first took it back";
  EXPECT_EQ(change_one(1, "own", false), "");
  EXPECT_EQ(change("own", true), "");
}

TEST_F(ReplicaAdaptersOnCpuDriver, AReplicaThatIsLostKeepsNobodyFromThem) {
  engines_.lose(0);
  const auto listener = engines_.begin(4, 4);
  EXPECT_EQ(listener->end().reason, EndReason::failed);
  EXPECT_EQ(change("own", true), "");
  EXPECT_EQ(tokens_on(1, "own").size(), 8u);
}

class ReplicaSleepOnCpuDriver : public testing::Test {
 protected:
  SleepOutcome order(SleepOrder order) {
    const auto told = std::make_shared<std::promise<SleepOutcome>>();
    order.told = [told](const SleepOutcome& outcome) { told->set_value(outcome); };
    engines_.replicas.order(std::move(order));
    auto future = told->get_future();
    EXPECT_EQ(future.wait_for(kReplicaPatience), std::future_status::ready);
    return future.get();
  }
  SleepOutcome sleep(bool aborts = false) { return order({.kind = SleepOrder::Kind::sleep, .aborts = aborts}); }
  SleepOutcome wake() { return order({.kind = SleepOrder::Kind::wake}); }

  TwoEngines engines_;
};

TEST_F(ReplicaSleepOnCpuDriver, PutsAllToSleepWhenWhatWaitsHasEnded) {
  std::vector<std::shared_ptr<EndsListener>> all;
  for (uint64_t i = 0; i < 9; ++i) all.push_back(engines_.begin(4, 20, i));
  EXPECT_EQ(engines_.replicas.sleep_level(), SleepLevel::awake);
  EXPECT_EQ(sleep().end, SleepEnd::done);
  for (const auto& one : all) EXPECT_EQ(one->end().outputs.size(), 20u);
  EXPECT_EQ(engines_.replicas.sleep_level(), SleepLevel::weights_on_host);
  EXPECT_EQ(engines_.replicas.admission(), Admission::asleep);
  for (const ReplicaState& state : engines_.replicas.states()) EXPECT_EQ(state.admission, Admission::asleep);
  const SleepOutcome woken = wake();
  EXPECT_EQ(woken.end, SleepEnd::done);
  EXPECT_EQ(woken.level, SleepLevel::awake);
  EXPECT_EQ(engines_.replicas.admission(), Admission::accepted);
  const auto first = engines_.begin(4, 4), second = engines_.begin(4, 4, 1);
  EXPECT_EQ(first->end().outputs.size() + second->end().outputs.size(), 8u);
  EXPECT_EQ(engines_.ended_on(0) + engines_.ended_on(1), 11u);
}

TEST_F(ReplicaSleepOnCpuDriver, CancelsWhatRunsAndWhatWaitsWhereItIsToldTo) {
  std::vector<std::shared_ptr<EndsListener>> all;
  for (uint64_t i = 0; i < 7; ++i) all.push_back(engines_.begin(4, 450, i));
  EXPECT_EQ(sleep(true).end, SleepEnd::done);
  for (const auto& one : all) EXPECT_EQ(one->end().message, "the engine is put to sleep");
  EXPECT_EQ(engines_.replicas.open(), 0u);
}

TEST_F(ReplicaSleepOnCpuDriver, OfAServerThatDrainsIsRefused) {
  engines_.replicas.drain();
  EXPECT_EQ(sleep().end, SleepEnd::not_now);
  EXPECT_EQ(wake().end, SleepEnd::not_now);
}

}  // namespace
}  // namespace nodewright::test
