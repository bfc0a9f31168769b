// The weights' copy in host memory: one at a time, freed after a wake-up, whatever becomes of the model meanwhile.
#include <chrono>
#include <thread>
#include <utility>

#include "tests/engine/sleeper.h"

namespace nodewright {
namespace {

using namespace test;

// The weights of the model are megabytes: a hundred copies would show.
TEST(SleepCopy, HasOneCopyAtATimeHoweverSoonItSleepsAgain) {
  Sleeper on("../../models/demo");
  const auto expected = on.served();
  const uint64_t pinned = on.host_memory();
  on.sleep.sleep(SleepLevel::weights_on_host);
  const uint64_t pinned_asleep = on.host_memory();
  on.sleep.wake();
  const uint64_t resident = resident_pages();
  for (int i = 0; i < 100; ++i) {
    on.sleep.sleep(SleepLevel::weights_on_host);
    ASSERT_EQ(on.host_memory(), pinned_asleep) << "time " << i;
    on.sleep.wake();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  while (on.host_memory() != pinned && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(on.host_memory(), pinned) << on.loaded.opened.interposer->describe_live();
  EXPECT_LT(resident_pages(), resident + (uint64_t{32} << 20) / 4096);
  EXPECT_EQ(on.served(), expected);
}

// A driver takes a third of a second to unpin 16 GB, which nobody who wakes an engine waits for.
TEST(SleepCopy, FreesTheCopyOnAnotherThreadWhenItWakesAndOnItsOwnWhenTheWeightsAreDropped) {
  for (const bool wakes : {true, false}) {
    Sleeper on("llama/odd_sizes");
    on.sleep.sleep(SleepLevel::weights_on_host);
    std::thread::id unpins;
    on.loaded.opened.interposer->trace_to([&](std::string_view line) {
      if (line.find("cuMemHostUnregister") != line.npos) unpins = std::this_thread::get_id();
    });
    if (wakes)
      on.sleep.wake();
    else
      on.sleep.sleep(SleepLevel::weights_dropped);
    EXPECT_FALSE(on.loaded.model.has_copy());
    on.loaded.model.forget_copy();
    on.loaded.opened.interposer->trace_to({});
    EXPECT_NE(unpins, std::thread::id());
    EXPECT_EQ(unpins == std::this_thread::get_id(), !wakes);
  }
}

TEST(SleepCopy, AModelMayMoveOrEndWhileItsCopyGoes) {
  OpenedDevice opened = open_device(test_device(), Observe::yes);
  Stream stream(*opened.device, "load");
  const size_t handles = opened.interposer->live().size();
  for (const bool moves : {false, true}) {
    DecoderModel model = DecoderModel::load(*opened.device, stream, golden_folder("llama/odd_sizes"));
    model.copy_to_host();
    model.begin_forget_copy();
    if (moves) {
      DecoderModel taker = std::move(model);
      model = DecoderModel::load(*opened.device, stream, golden_folder("llama/odd_sizes"));
    }
  }
  EXPECT_EQ(opened.interposer->live().size(), handles) << opened.interposer->describe_live();
}

TEST(SleepCopyOnCpuDriver, FreesTheHostsMemoryOfADeviceThatIsLost) {
  Sleeper on("llama/odd_sizes");
  on.sleep.sleep(SleepLevel::weights_on_host);
  EXPECT_GT(on.host_memory(), 0u);
  on.loaded.opened.interposer->fail_from(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  on.loaded.model.begin_forget_copy();
  on.loaded.model.forget_copy();
  EXPECT_EQ(on.host_memory(), 0u) << on.loaded.opened.interposer->describe_live();
  on.loaded.opened.interposer->fail_none();
}

}  // namespace
}  // namespace nodewright
