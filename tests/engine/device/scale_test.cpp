// Sizes that people serve, on two layers: four thousand requests in a step, and a context of 131 072 tokens in a cache
// of more than 4 GiB a layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/engine.h"
#include "graph/plan_run.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using test::Tokens;

// Sixteen prompts: equal ones are followed by equal tokens, in whatever row, and different ones are not all.
TEST(EngineAtScaleSweep, ServesFourThousandRequestsInAStep) {
  constexpr int kRows = 4096, kPrompts = 16;
  test::LoadedModel loaded("llama/one_kv_head");
  Engine engine(loaded.device, loaded.kernels, loaded.model,
                {.max_batch = kRows, .step_tokens = kRows, .buckets = {kRows}, .max_context = kPageTokens});
  std::map<RequestId, int32_t> asked;
  for (int32_t i = 0; i < kRows; ++i) {
    const int32_t token = i % kPrompts * 3;
    asked[engine.submit({.prompt = {token}, .max_tokens = 3}).id.value()] = token;
  }
  while (engine.advance()) continue;
  engine.pipeline().check();
  std::map<int32_t, Tokens> first;
  std::set<Tokens> different;
  size_t served = 0;
  for (const Resolution& end : engine.take_resolutions()) {
    ASSERT_EQ(end.reason, EndReason::length) << end.message;
    const Tokens& expected = first.emplace(asked.at(end.request), end.outputs).first->second;
    ASSERT_EQ(end.outputs, expected) << "request " << end.request;
    different.insert(end.outputs);
    ++served;
  }
  EXPECT_EQ(served, size_t{kRows});
  EXPECT_GT(different.size(), size_t{kPrompts} / 2);
  EXPECT_EQ(engine.stats().step_rows, (std::map<int, int64_t>{{kRows, 3}}));
}

// One row at the end of its context, its pages wherever they lie.
class LongContext : public testing::Test {
 protected:
  static constexpr int64_t kContext = 131072, kPages = kContext / kPageTokens;

  uint64_t page_bytes() const { return KvCache::page_bytes(loaded_.model.config()); }
  // Key and value of every head and token, small numbers that depend on the page of the sequence and on the layer.
  void write_page(int32_t to, int64_t page, uint16_t exponent_and_sign = 0x3d00) {
    std::vector<uint16_t> values(page_bytes() / sizeof(uint16_t));
    for (int64_t layer = 0; layer < loaded_.model.config().layers; ++layer) {
      uint64_t bits = static_cast<uint64_t>(2 * page + layer) * 0x9e3779b97f4a7c15u + 1;
      for (uint16_t& value : values) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<uint16_t>(exponent_and_sign | (bits >> 48 & 0x80ff));
      }
      write_device(loaded_.device, cache_.layer(layer).address() + static_cast<uint64_t>(to) * page_bytes(),
                   std::as_bytes(std::span(values)), "kv");
    }
  }
  test::Logits logits(const std::vector<int32_t>& table) {
    slot_.write_table(0, 0, table);
    write_row(state_.host_inputs, 0,
              {.token = 5, .position = kContext - 1, .sequence = 0, .output = 0, .sampling = {}});
    state_.host_inputs.n_live.data[0] = state_.host_inputs.n_sampled.data[0] = 1;
    state_.host_inputs.keeps_logits.data[0] = 1;
    run_.launch();
    loaded_.stream.synchronize();
    test::Logits values(loaded_.vocab());
    read_view<float>(loaded_.device, values, state_.logits.subview(0, values.size()), "logits");
    return values;
  }

  test::LoadedModel loaded_{"llama/one_kv_head"};
  // Where the device has them, the last page ends 5 GB from the first one of its layer.
  const int64_t all_pages_ =
      static_cast<int64_t>(std::min<uint64_t>(5'000'000'000, loaded_.device.free_bytes() / 5 * 2) / page_bytes());
  KvCache cache_{loaded_.device, loaded_.model.config(), all_pages_};
  DecodeSlot slot_{loaded_.device, loaded_.model.config(), {.rows = 1, .max_context = kContext}};
  DecodeState state_ = slot_.state(1);
  DecoderKernels kernels_ = decoder_kernels(loaded_.kernels, loaded_.model.config(), slot_.shape(1));
  PlanRun run_{decoder_plan(loaded_.device, loaded_.model, kernels_, cache_, state_, DecodePurpose::serve,
                            EdgePolicy::programmatic),
               RunMode::explicit_, loaded_.stream};
};

TEST_F(LongContext, HasTheSameBitsWhereverItsPagesLieAndReadsThemAll) {
  std::vector<int32_t> near, far;
  for (int64_t page = 0; page < kPages; ++page) {
    near.push_back(static_cast<int32_t>(page));
    // From the last page down, in steps that leave others between them.
    far.push_back(static_cast<int32_t>(all_pages_ - 1 - page * 11));
    write_page(near.back(), page);
    write_page(far.back(), page);
  }
  const test::Logits expected = logits(near);
  for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(logits(far), expected);
  for (const int64_t page : {int64_t{0}, kPages / 2, kPages - 2}) {
    write_page(far[static_cast<size_t>(page)], page, 0x7fc0);  // NaN
    EXPECT_TRUE(std::isnan(logits(far)[0])) << "page " << page << " is not read";
    write_page(far[static_cast<size_t>(page)], page);
  }
  EXPECT_EQ(logits(far), expected);
}

}  // namespace
}  // namespace nodewright
