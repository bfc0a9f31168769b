// An engine whose pages run out, and one whose memory is limited.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "tests/engine/golden_model.h"
#include "tests/engine/poison_free.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

// Three requests of three pages each in the end, more than five pages hold.
EngineOptions growing_options(Reserve reserve, int64_t pages) {
  return {.max_batch = 3, .buckets = {8}, .max_context = 3 * kPageTokens, .pages = pages, .reserve = reserve};
}

struct GrowingRun {
  std::map<RequestId, std::vector<int32_t>> streamed, outputs;
  int most_at_once = 0;
};

GrowingRun serve_growing(Engine& engine, test::LoadedModel& loaded, bool poisons) {
  GrowingRun run;
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(engine
                    .submit({.prompt = test::some_tokens(60, loaded.vocab(), i), .max_tokens = 90},
                            {.temperature = i == 1 ? 0.9f : 0.0f, .seed = 3})
                    .id);
  for (int i = 0; engine.advance(); ++i) {
    engine.pipeline().check();
    if (poisons && i % 4 == 0) test::poison_free(engine, loaded);
    run.most_at_once = std::max(run.most_at_once, static_cast<int>(engine.pipeline().admitted().size()));
    for (const CommittedToken& token : engine.take_tokens()) run.streamed[token.request].push_back(token.token);
  }
  for (const Resolution& end : engine.take_resolutions()) {
    EXPECT_EQ(end.reason, EndReason::length) << end.message;
    EXPECT_TRUE(run.outputs.emplace(end.request, end.outputs).second);
  }
  return run;
}

TEST(EnginePages, PreemptsTheLastAdmittedWithoutRepeatingOrChangingAToken) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine ample(loaded.device, loaded.kernels, loaded.model, growing_options(Reserve::all, 9));
  const GrowingRun expected = serve_growing(ample, loaded, false);
  ASSERT_EQ(expected.outputs.size(), 3u);
  EXPECT_EQ(ample.pipeline().preemptions(), 0);

  Engine engine(loaded.device, loaded.kernels, loaded.model, growing_options(Reserve::prompt, 5));
  const GrowingRun run = serve_growing(engine, loaded, true);
  EXPECT_EQ(run.most_at_once, 3);
  EXPECT_GT(engine.pipeline().preemptions(), 1);
  EXPECT_EQ(run.outputs, expected.outputs);
  EXPECT_EQ(run.streamed, expected.outputs);
  EXPECT_EQ(engine.stats().output_tokens, 270);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
}

}  // namespace
}  // namespace nodewright
