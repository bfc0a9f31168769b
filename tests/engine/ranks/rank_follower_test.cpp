// A follower does what rank 0 says: with the whole model on both, its keys and values become those of rank 0, bit for
// bit, under chunks of prompts, shared pages, drafts, second choices and few pages.
#include "engine/ranks/rank_follower.h"

#include <functional>
#include <map>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "engine/ranks/rank_followers.h"
#include "runtime/context_guard.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/engine/ranks/linked_ranks.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int kJobs = 10;

struct FollowedSetting {
  const char* name;
  int speculate = 0;
  bool choices = false;  // every other request is chosen by the second graph
  int64_t pages = 0;     // few: each goes from one request to the next
  const char* golden = "llama/odd_sizes";
};

EngineOptions followed_options(const FollowedSetting& setting) {
  return {.max_batch = 8,
          .step_tokens = 8,
          .buckets = {1, 4, 8},
          .max_context = 192,
          .pages = setting.pages,
          .reserve = setting.pages > 0 ? Reserve::prompt : Reserve::all,
          .choices = setting.choices,
          .speculate = setting.speculate,
          .seed = 3};
}

// One device with the whole model.
struct WholeModel {
  explicit WholeModel(Device& on, const std::filesystem::path& folder)
      : device(on), stream(on, "load"), kernels(on), model(DecoderModel::load(on, stream, folder)) {}
  ModelPlace place() { return {&device, &kernels, &model}; }
  Device& device;
  Stream stream;
  KernelCache kernels;
  DecoderModel model;
};

struct TwoWholeModels {
  explicit TwoWholeModels(const std::filesystem::path& folder) {
    const bool is_cpu = test_device() == "cpu";
    const DeviceChoice chosen = choose_devices(is_cpu ? "cpu:devices=2" : "cuda", 2, "a test");
    opened = open_devices(open_driver(chosen.driver), chosen.ordinals);
    first.emplace(*opened.device, folder);
    second.emplace(*opened.more[0], folder);
  }
  OpenedDevice opened;
  std::optional<WholeModel> first, second;
};

std::vector<std::byte> pages_of(StepSlots& slots) {
  std::vector<std::byte> bytes(slots.cache().bytes());
  read_device(slots.device(), std::span(bytes), slots.cache().buffer().address(), "cache");
  return bytes;
}

// The follower's thread: its slots serve until rank 0 ends. What it has in its pages then, and its Error.
struct Following {
  Following(RankLink& link, WholeModel& model, const EngineOptions& options) {
    thread = std::thread([&link, &model, options, this] {
      const ContextGuard current(model.device);
      const EngineOptions completed = completed_options(options, model.model.config(), model.device);
      StepSlotsOptions own = slot_options(completed, model.model.config());
      own.least_pages = [&](int64_t pages) { return link.least(pages); };
      error = error_of([&] {
        const ModelPlace place = model.place();
        StepSlots slots(std::span(&place, 1), own);
        slots.fill_pages(std::byte{0});
        ready.set_value();
        RankFollower(link, slots).run();
        slots.stream().synchronize();
        pages = pages_of(slots);
      });
    });
  }
  ~Following() {
    if (thread.joinable()) thread.join();
  }
  std::promise<void> ready;
  std::vector<std::byte> pages;
  std::string error;
  std::thread thread;
};

void submit_jobs(Engine& engine, const FollowedSetting& setting, int64_t vocab) {
  std::mt19937 random(29);
  const auto token = [&] { return static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)); };
  Tokens shared;
  for (int i = 0; i < kPageTokens + 3; ++i) shared.push_back(token());
  for (int i = 0; i < kJobs; ++i) {
    RequestSpec spec;
    if (i % 2 == 0) spec.prompt = shared;
    for (uint64_t left = 1 + random() % 25; left > 0; --left) spec.prompt.push_back(token());
    spec.max_tokens = 1 + static_cast<int64_t>(random() % 12);
    Sampling sampling{.seed = random()};
    if (i % 3 != 0) sampling.temperature = 0.9f, sampling.top_k = 50, sampling.top_p = 0.95f;
    ChoiceOptions choice;
    if (setting.choices && i % 2 == 1) {
      choice.presence_penalty = 1.5f, choice.repetition_penalty = 1.2f, choice.biases = {{3, 4.0f}, {9, 4.0f}};
      if (i % 4 == 1) {
        choice.allow = [](std::span<const int32_t>, std::span<uint32_t> mask) { mask[0] = 0xfffffff0; };
        spec.max_tokens = 6;
      }
    }
    const PipelineState::Submitted submitted = engine.submit(std::move(spec), sampling, std::move(choice));
    ASSERT_TRUE(submitted.id) << submitted.reason;
  }
}

class Follower : public testing::TestWithParam<FollowedSetting> {};

TEST_P(Follower, HasTheKeysAndValuesOfRankZero) {
  TwoWholeModels models(golden_folder(GetParam().golden));
  auto links = linked_ranks(2);
  EngineOptions options = followed_options(GetParam());
  Following following(*links[1], *models.second, options);
  RankFollowers followers(*links[0]);
  options.followers = &followers;
  options.least_pages = [&](int64_t pages) { return links[0]->least(pages); };
  std::vector<std::byte> pages;
  {
    const ModelPlace place = models.first->place();
    Engine engine(std::span(&place, 1), options);
    following.ready.get_future().wait();
    engine.slots().fill_pages(std::byte{0});
    submit_jobs(engine, GetParam(), models.first->model.config().vocab);
    while (engine.advance()) continue;
    size_t ended = 0;
    for (const Resolution& end : engine.take_resolutions()) {
      ++ended;
      EXPECT_NE(end.reason, EndReason::failed) << end.message;
    }
    EXPECT_EQ(ended, static_cast<size_t>(kJobs));
    pages = pages_of(engine.slots());
    links[0]->end();
  }
  following.thread.join();
  EXPECT_EQ(following.error, "");
  EXPECT_TRUE(following.pages == pages);
  EXPECT_GT(std::ranges::count_if(pages, [](std::byte b) { return b != std::byte{0}; }), 1000);
  links[1].reset();
}

INSTANTIATE_TEST_SUITE_P(TwoDevices, Follower,
                         testing::Values(FollowedSetting{.name = "few_pages", .pages = 5},
                                         FollowedSetting{.name = "drafts_and_choices", .speculate = 3, .choices = true},
                                         FollowedSetting{.name = "windows", .golden = "gemma3/window_16"}),
                         [](const auto& info) { return std::string(info.param.name); });

// The engine fails every request once, with the rank that has left; nothing waits.
TEST(TwoDevicesFollowerEnds, RequestsFailOnceWhereAFollowerLeaves) {
  TwoWholeModels models(golden_folder("llama/odd_sizes"));
  auto links = linked_ranks(2);
  RankFollowers followers(*links[0]);
  const ModelPlace place = models.first->place();
  Engine engine(std::span(&place, 1), {.max_batch = 4, .max_context = 64, .followers = &followers});
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine.submit({.prompt = {1, 2, 3 + i}, .max_tokens = 20}).id);
  for (int i = 0; i < 9; ++i) engine.advance();
  links[1].reset();
  while (links[0]->lost().empty()) std::this_thread::yield();
  while (engine.advance()) continue;
  const std::vector<Resolution> ends = engine.take_resolutions();
  EXPECT_EQ(ends.size(), 6U);
  for (const Resolution& end : ends) {
    EXPECT_EQ(end.reason, EndReason::failed);
    expect_words(end.message, {"cannot go on with the other ranks", "rank 1 at 127.0.0.1:", "it has left"});
  }
  expect_words(engine.submit({.prompt = {1}, .max_tokens = 1}).reason, {"rank 1 at 127.0.0.1:"});
}

TEST(TwoDevicesFollowerEnds, AnEngineWithFollowersRefusesWhatTheyCannotFollow) {
  TwoWholeModels models(golden_folder("llama/odd_sizes"));
  auto links = linked_ranks(2);
  RankFollowers followers(*links[0]);
  const ModelPlace place = models.first->place();
  Engine engine(std::span(&place, 1), {.max_batch = 1, .max_context = 64, .choices = true, .followers = &followers});
  expect_error([&] { engine.sleep(); }, {"cannot sleep", "other processes"});
  engine.pause();
  expect_error([&] { engine.rebuild_graphs({.buckets = {1}}); }, {"cannot rebuild graphs", "other processes"});
  expect_error([&] { engine.replace_weights(models.first->model); }, {"cannot replace weights", "other processes"});
  engine.resume();
  ChoiceOptions choice;
  choice.prompt_logprobs = 1;
  expect_words(engine.submit({.prompt = {1, 2}, .max_tokens = 1}, {}, choice).reason, {"several processes"});
}

// An impossible message to a follower is an Error of its own, which rank 0 hears.
TEST(TwoDevicesFollowerEnds, AStepThatCannotBeIsAnErrorThatNamesIt) {
  TwoWholeModels models(golden_folder("llama/odd_sizes"));
  const std::vector<std::pair<std::function<void(FrameWriter&)>, const char*>> cases = {
      {[](FrameWriter& w) { write_launch(w, {.slot = 5, .bucket = 1}, {}); }, "slot 5 of 2"},
      {[](FrameWriter& w) { write_launch(w, {.slot = 0, .bucket = 3}, {}); }, "no bucket of 3 rows"},
      {[](FrameWriter& w) { write_launch(w, {.slot = 0, .bucket = 1}, {}); }, "its inputs have 0 bytes"},
      {[](FrameWriter& w) { write_sample(w, -1, 0, {}, nullptr); }, "slot -1"},
      {[](FrameWriter& w) { w.begin(FrameKind::number); }, "number"},
      {[](FrameWriter& w) { w.begin(static_cast<FrameKind>(77)); }, "kind 77"}};
  const ContextGuard current(models.second->device);
  const ModelPlace place = models.second->place();
  StepSlots slots(std::span(&place, 1), {.buckets = BucketSet({1}), .max_context = 64, .pages = 4});
  for (const auto& [write, words] : cases) {
    auto links = linked_ranks(2);
    FrameWriter writer(FrameKind::end);
    write(writer);
    links[0]->tell(writer);
    expect_error([&] { RankFollower(*links[1], slots).run(); }, {"follow rank 0", words});
  }
}

}  // namespace
}  // namespace nodewright
