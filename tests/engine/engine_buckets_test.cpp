// What an engine does past its largest bucket, and when its graphs or its weights are replaced under open requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "engine/engine.h"
#include "runtime/host/parallel.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

constexpr int kWalkedBucket = 32;

EngineOptions walk_options(bool allow_eager) {
  return {.max_batch = allow_eager ? kWalkedBucket + 1 : kWalkedBucket,
          .step_tokens = 32,
          .buckets = {8, kWalkedBucket},
          .max_context = kPageTokens,
          .numerics = Numerics::invariant,  // tokens are compared across buckets
          .allow_eager = allow_eager};
}

// Eight requests of which three, then one more end; then one more than the largest bucket has rows.
std::map<RequestId, std::vector<int32_t>> walk(Engine& engine) {
  std::map<RequestId, std::vector<int32_t>> outputs;
  const auto serve = [&](const std::vector<int64_t>& lengths) {
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_TRUE(
          engine.submit({.prompt = {static_cast<int32_t>(outputs.size() + i), 7}, .max_tokens = lengths[i]}).id);
    while (engine.advance()) continue;
    for (const Resolution& end : engine.take_resolutions()) {
      EXPECT_EQ(end.reason, EndReason::length) << end.message;
      EXPECT_TRUE(outputs.emplace(end.request, end.outputs).second);
    }
  };
  serve({3, 3, 3, 5, 7, 7, 7, 7});
  serve(std::vector<int64_t>(kWalkedBucket + 1, 20));
  return outputs;
}

TEST(EngineBuckets, GraphsBuiltByManyThreadsAreThoseOfOne) {
  std::map<RequestId, std::vector<int32_t>> outputs[2];
  for (const Observe observe : {Observe::no, Observe::yes}) {
    test::LoadedModel loaded("llama/odd_sizes", test::test_device(), observe);
    EngineOptions options = walk_options(true);
    options.choices = true;
    std::atomic<int> telling = 0;
    std::vector<int> told;
    options.built = [&](const BuiltBucket& one) {
      EXPECT_EQ(telling++, 0) << "two at once";
      told.push_back(one.built);
      --telling;
    };
    Engine engine(loaded.device, loaded.kernels, loaded.model, options);
    const BuiltGraphs& built = engine.slots().built();
    if (observe == Observe::yes)
      EXPECT_EQ(built.threads, 1u) << "a trace repeats from run to run";
    else
      EXPECT_EQ(built.threads > 1, usable_threads() > 1);
    ASSERT_EQ(told.size(), built.graphs.size());
    for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], static_cast<int>(i) + 1);
    for (size_t i = 0; i + 1 < built.graphs.size(); ++i)  // however they ended
      EXPECT_TRUE(built.graphs[i].bucket > built.graphs[i + 1].bucket ||
                  (built.graphs[i].bucket == built.graphs[i + 1].bucket &&
                   built.graphs[i].slot + 1 == built.graphs[i + 1].slot));
    EXPECT_GT(built.ms, 0);
    EXPECT_GT(built.choice_ms, 0);
    outputs[observe == Observe::yes] = walk(engine);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST(EngineBuckets, OfEverySizeLeaveNoDecodeStepPadded) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine engine(loaded.device, loaded.kernels, loaded.model,
                {.max_batch = 7, .step_tokens = 10, .exact_buckets = true, .max_context = 64});
  for (int rows = 1; rows <= 7; ++rows) {
    const CanRun run = engine.can_run(rows);
    EXPECT_TRUE(run.can && run.bucket == rows) << run.reason;
  }
  for (int32_t i = 0; i < 7; ++i) EXPECT_TRUE(engine.submit({.prompt = {1 + i, 2, 3}, .max_tokens = 3 + 2 * i}).id);
  while (engine.advance()) continue;
  for (const auto& [plan, use] : engine.stats().buckets) {
    if (plan.first > 7) continue;
    EXPECT_EQ(use.exact, use.steps) << plan.first;
  }
  EXPECT_TRUE(engine.stats().buckets.contains({5, RunMode::explicit_}));
}

TEST(EngineBuckets, RunMoreRowsThanTheLargestEagerOnlyWhenAllowedWithTheSameTokens) {
  test::LoadedModel loaded("llama/odd_sizes");
  EngineOptions options = walk_options(true);
  std::vector<std::string> told;
  options.built = [](const BuiltBucket& one) { EXPECT_EQ(one.nodes == 0, one.bucket == 0); };
  options.fell_back = [&](const std::string& reason) { told.push_back(reason); };
  Engine eager(loaded.device, loaded.kernels, loaded.model, options);
  Engine graphs(loaded.device, loaded.kernels, loaded.model, walk_options(false));

  const CanRun within = eager.can_run(5), past = eager.can_run(33), refused = graphs.can_run(33);
  EXPECT_TRUE(within.can && within.bucket == 8 && within.mode == RunMode::explicit_) << within.reason;
  EXPECT_TRUE(past.can && past.bucket == 0 && past.mode == RunMode::eager) << past.reason;
  expect_words(past.reason, {"33 rows", "has 32"});
  EXPECT_FALSE(refused.can);
  expect_words(refused.reason, {"33 rows", "32 requests"});
  EXPECT_FALSE(eager.can_run(0).can);

  EXPECT_EQ(walk(eager), walk(graphs));
  const EngineStats &with = eager.stats(), &without = graphs.stats();
  for (const int rows : {8, 5, 4}) EXPECT_GT(with.step_rows.at(rows), 0) << rows;
  const BucketUse past_largest = with.buckets.at({33, RunMode::eager});
  EXPECT_GT(past_largest.steps, 3);
  EXPECT_EQ(past_largest.rows, 33 * past_largest.steps);
  EXPECT_EQ(past_largest.exact, past_largest.steps);
  EXPECT_EQ(with.fallbacks, (std::map<std::string, int64_t>{{told.at(0), past_largest.steps}}));
  EXPECT_EQ(told.size(), 1u);
  expect_words(told[0], {"more rows than the largest bucket has, 32"});
  EXPECT_TRUE(without.fallbacks.empty());
  EXPECT_EQ(with.most_pages, 33);
  EXPECT_EQ(with.idle_gaps, 0);  // a next step is always in flight, a prompt's too
  EXPECT_FALSE(without.step_rows.contains(33));
  EXPECT_GT(without.buckets.at({32, RunMode::explicit_}).exact, 3);
  EXPECT_EQ(with.steps(), [&] {
    int64_t sum = 0;
    for (const auto& [rows, steps] : with.step_rows) sum += steps;
    return sum;
  }());
}

// Requests that go on for a while, two of them sampled, and one that waits.
void submit_some(Engine& engine, size_t vocab) {
  for (uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(engine
                    .submit({.prompt = test::some_tokens(3 + 20 * i, vocab, i), .max_tokens = 20},
                            {.temperature = i % 2 ? 1.0f : 0.0f, .seed = i})
                    .id);
}

EngineOptions rebuilt_options() { return {.max_batch = 3, .buckets = {8}, .max_context = 2 * kPageTokens}; }

void pause_and_drain(Engine& engine) {
  engine.pause();
  while (engine.advance()) continue;
  ASSERT_EQ(engine.pipeline().mode(), PipelineMode::paused);
}

std::map<RequestId, std::vector<int32_t>> take_outputs(Engine& engine) {
  std::map<RequestId, std::vector<int32_t>> outputs;
  for (const Resolution& end : engine.take_resolutions())
    EXPECT_TRUE(outputs.emplace(end.request, end.outputs).second) << "request " << end.request << ": " << end.message;
  return outputs;
}

std::map<HandleKind, uint64_t> live_kinds(const Interposer& interposer) {
  std::map<HandleKind, uint64_t> kinds;
  for (const LiveHandle& handle : interposer.live()) ++kinds[handle.kind];
  return kinds;
}

TEST(EngineBuckets, GoOnWithTheSameTokensThroughAThousandPausesAndFiftyRebuildsThatLeaveNothing) {
  test::LoadedModel loaded("llama/odd_sizes", test::test_device(), Observe::yes);
  Engine undisturbed(loaded.device, loaded.kernels, loaded.model, rebuilt_options());
  submit_some(undisturbed, loaded.vocab());
  while (undisturbed.advance()) continue;
  const auto expected = take_outputs(undisturbed);
  ASSERT_EQ(expected.size(), 4u);

  Engine engine(loaded.device, loaded.kernels, loaded.model, rebuilt_options());
  submit_some(engine, loaded.vocab());
  const GraphOptions shapes[] = {{.buckets = {8}, .policy = EdgePolicy::serial},
                                 {.buckets = {8, 32}},
                                 {.buckets = {8}, .mode = RunMode::eager},
                                 {.buckets = {8}, .policy = EdgePolicy::full},
                                 {.buckets = {8}}};
  pause_and_drain(engine);
  for (const GraphOptions& shape : shapes) engine.rebuild_graphs(shape);  // the cache keeps the kernels of each
  engine.resume();
  const auto live = live_kinds(*loaded.opened.interposer);
  int rebuilds = 0;
  for (int cycle = 0; cycle < 1000; ++cycle) {
    pause_and_drain(engine);
    if (cycle % 20 == 0) engine.rebuild_graphs(shapes[rebuilds++ % 5]);
    engine.resume();
    if (cycle % 6 == 0) engine.advance();
  }
  EXPECT_EQ(rebuilds, 50);
  while (engine.advance()) continue;
  EXPECT_EQ(take_outputs(engine), expected);
  EXPECT_EQ(live_kinds(*loaded.opened.interposer), live);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
  EXPECT_GT(engine.stats().buckets.at({8, RunMode::eager}).steps, 0);
}

// Building runs no step over the cache, so that nothing is to be put back.
TEST(EngineBuckets, AreBuiltWithoutTouchingAPage) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine engine(loaded.device, loaded.kernels, loaded.model, rebuilt_options());
  submit_some(engine, loaded.vocab());
  for (int i = 0; i < 9; ++i) engine.advance();
  pause_and_drain(engine);
  const DeviceBuffer& cache = engine.slots().cache().buffer();
  const auto bytes = [&] {
    std::vector<std::byte> all(cache.bytes());
    read_device(loaded.device, all, cache.address(), "kv");
    return all;
  };
  const std::vector<std::byte> before = bytes();
  const int64_t owned = engine.pipeline().pool().owned_pages();
  EXPECT_GT(owned, 0);
  engine.rebuild_graphs({.buckets = {8, 32}});
  EXPECT_TRUE(bytes() == before);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), owned);
}

TEST(EngineBuckets, RefuseARebuildThatCannotBeAndGoOn) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine engine(loaded.device, loaded.kernels, loaded.model, rebuilt_options());
  submit_some(engine, loaded.vocab());
  expect_words(error_of([&] { engine.rebuild_graphs({.buckets = {8}}); }), {"rebuild graphs", "running", "pause()"});
  pause_and_drain(engine);
  expect_words(error_of([&] { engine.rebuild_graphs({.buckets = {2}}); }), {"buckets", "2", "max batch is 3"});
  const DecoderModel other =
      DecoderModel::load(loaded.device, loaded.stream, test::golden_folder("qwen3/normed_heads"));
  expect_words(error_of([&] { engine.replace_weights(other); }), {"replace weights", "engine was made for"});
  engine.resume();
  while (engine.advance()) continue;
  for (const Resolution& end : engine.take_resolutions()) EXPECT_EQ(end.reason, EndReason::length) << end.message;
}

// A copy of a golden model whose embedding, the head too, is back to front.
std::filesystem::path reversed_model(const std::string& golden) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "engine_buckets_reversed";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(test::golden_folder(golden), folder);
  std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const auto range = nlohmann::json::parse(header).at("model.embed_tokens.weight").at("data_offsets");
  std::vector<uint16_t> values((range[1].get<size_t>() - range[0].get<size_t>()) / sizeof(uint16_t));
  const auto place = static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + range[0].get<uint64_t>());
  const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(uint16_t));
  file.seekg(place);
  file.read(reinterpret_cast<char*>(values.data()), bytes);
  std::ranges::reverse(values);
  file.seekp(place);
  file.write(reinterpret_cast<const char*>(values.data()), bytes);
  return folder;
}

TEST(EngineBuckets, ServeWithReplacedWeightsAndForgetWhatTheOldOnesCached) {
  test::LoadedModel loaded("llama/odd_sizes");
  const DecoderModel next = DecoderModel::load(loaded.device, loaded.stream, reversed_model("llama/odd_sizes"));
  const RequestSpec spec{.prompt = test::some_tokens(kPageTokens + 5, loaded.vocab(), 4), .max_tokens = 12};
  const auto serve = [&](Engine& engine) {
    EXPECT_TRUE(engine.submit(spec).id);
    while (engine.advance()) continue;
    return engine.take_resolutions().at(0).outputs;
  };
  Engine old(loaded.device, loaded.kernels, loaded.model, rebuilt_options());
  Engine fresh(loaded.device, loaded.kernels, next, rebuilt_options());
  const std::vector<int32_t> before = serve(old), after = serve(fresh);
  EXPECT_NE(before, after);
  EXPECT_EQ(old.pipeline().pool().cached_pages(), 1);

  ASSERT_TRUE(old.submit({.prompt = {1, 2}, .max_tokens = 40}).id);  // open while they are replaced
  for (int i = 0; i < 9; ++i) old.advance();
  pause_and_drain(old);
  old.replace_weights(next);
  old.resume();
  EXPECT_EQ(old.pipeline().pool().cached_pages(), 0);
  while (old.advance()) continue;
  EXPECT_EQ(old.take_resolutions().at(0).outputs.size(), 40u);
  EXPECT_EQ(serve(old), after);
}

// Every ninth driver call of a rebuild fails in turn.
TEST(EngineBucketsOnCpuDriver, ResolveEveryRequestOnceWhicheverCallOfARebuildFails) {
  test::LoadedModel loaded("llama/odd_sizes", "cpu", Observe::yes);
  Interposer& interposer = *loaded.opened.interposer;
  (void)Engine(loaded.device, loaded.kernels, loaded.model, rebuilt_options());  // loads the kernels
  const std::string before = interposer.describe_live();
  int failed = 0, harmless = 0;
  for (uint64_t call = 0;; call += 9) {
    uint64_t injected = interposer.failures_injected();
    {
      Engine engine(loaded.device, loaded.kernels, loaded.model, rebuilt_options());
      submit_some(engine, loaded.vocab());
      for (int i = 0; i < 12; ++i) engine.advance();
      pause_and_drain(engine);
      interposer.fail_call(call, call % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
      std::string message;
      try {
        engine.rebuild_graphs({.buckets = {8}, .policy = EdgePolicy::full});
      } catch (const Error& error) {
        message = error.what();
      }
      interposer.fail_none();
      injected = interposer.failures_injected() - injected;
      if (message.empty()) {  // none failed, or one that only releases
        engine.resume();
        while (engine.advance()) continue;
      }
      const std::vector<Resolution> ends = engine.take_resolutions();
      EXPECT_EQ(ends.size(), 4u) << "call " << call;
      for (const Resolution& end : ends) {
        EXPECT_EQ(end.message, message) << "call " << call;
        EXPECT_EQ(end.reason, message.empty() ? EndReason::length : EndReason::failed);
      }
      EXPECT_FALSE(engine.advance());
      ++(message.empty() ? harmless : failed);
    }
    EXPECT_EQ(interposer.describe_live(), before) << "call " << call;
    if (injected == 0 || HasFailure()) break;
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(harmless, 1);
}

}  // namespace
}  // namespace nodewright
