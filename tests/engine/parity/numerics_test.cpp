// What --numerics promises: invariant, a row has the same bits in every bucket, at any place of it, and however its
// prompt is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "models/lowering/decoder_kernels.h"
#include "models/network/network.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

// Where the row is: which of `rows`, in which bucket, after a prompt in steps of `chunk` rows.
struct RowPlace {
  int64_t bucket, chunk;
  size_t place, rows;
};
std::vector<RowPlace> row_places() {
  if (test_device().starts_with("cpu")) return {{2, 1, 1, 2}, {8, 3, 4, 7}, {40, 40, 35, 39}};
  return {
      {2, 1, 1, 2},      {3, 3, 0, 3},      {4, 7, 3, 4},         {8, 16, 4, 7},        {16, 5, 15, 16},
      {32, 31, 31, 32},  {33, 33, 32, 33},  {40, 40, 35, 39},     {64, 64, 63, 64},     {64, 200, 0, 1},
      {128, 96, 90, 97}, {256, 256, 3, 17}, {256, 100, 255, 256}, {256, 128, 128, 200},
  };
}

// One of each form that the CPU driver has time for: grouped heads, normed heads, norms behind and windows, and
// LayerNorms with biases; all on a GPU.
std::vector<std::string> models_of_numerics() {
  if (test_device().starts_with("cpu"))
    return {"llama/one_kv_head", "qwen3/normed_heads", "gemma3/window_16", "gpt2/learned_positions",
            "mixtral/two_of_four"};
  std::vector<std::string> models = kGoldenModels;
  models.insert(models.end(), kFamilyModels.begin(), kFamilyModels.end());
  return models;
}

class NumericsOf : public testing::TestWithParam<std::string> {
 protected:
  NumericsOf()
      : context_(std::min<int64_t>(loaded_.model.config().max_position, 256)),
        prompt_(some_tokens(static_cast<size_t>(context_ - 36), loaded_.vocab(), 5)),
        forced_(some_tokens(4, loaded_.vocab(), 6)) {}

  // The row's logits, token after token, among rows of other sequences, some of which have a prompt as well.
  std::vector<Logits> logits(const RowPlace& at, Numerics numerics = Numerics::invariant) {
    Decoder decoder = loaded_.decoder({.bucket = at.bucket,
                                       .prefill_rows = at.chunk,
                                       .max_context = context_,
                                       .sequences = static_cast<int64_t>(at.rows),
                                       .numerics = numerics,
                                       .keep_logits = true});
    std::vector<StepRow> rows;
    for (size_t i = 0; i < at.rows; ++i) {
      rows.push_back({.sequence = decoder.open(), .token = static_cast<int32_t>(i % loaded_.vocab())});
      if (i == at.place)
        decoder.append(rows.back().sequence, std::span(prompt_).first(prompt_.size() - 1));
      else if (i % 16 == 1)
        decoder.append(rows.back().sequence, std::span(prompt_).first(7 * i % 50 + 1));
    }
    rows[at.place].token = prompt_.back();
    std::vector<Logits> found;
    for (size_t i = 0; i <= forced_.size(); ++i) {
      decoder.step(rows);
      found.push_back(logits_of(decoder, loaded_, static_cast<int64_t>(at.place)));
      for (StepRow& row : rows) row.token.reset();  // what the device chose
      if (i < forced_.size()) rows[at.place].token = forced_[i];
    }
    return found;
  }

  LoadedModel loaded_{GetParam()};
  int64_t context_;
  Tokens prompt_, forced_;
};

TEST_P(NumericsOf, InvariantGiveTheSameBitsInEveryBucketPlaceAndChunk) {
  const std::vector<Logits> alone = logits({1, 8, 0, 1});
  for (const RowPlace& at : row_places())
    EXPECT_TRUE(same_bits(logits(at), alone))
        << "row " << at.place << " of " << at.rows << " in bucket " << at.bucket << ", chunks of " << at.chunk;
}

// Whatever a step's rows, a row's keys are dealt to the same sections and taken alike from rings of one length.
TEST_P(NumericsOf, InvariantCutARowsKeysAlike) {
  const ModelConfig& config = loaded_.model.config();
  DeviceProperties device = loaded_.device.properties();
  device.sm_count = 132;  // room for several blocks a row, whatever the heads
  const auto shape = [&](int64_t rows) { return flash_decode_shape(config, {rows, Numerics::invariant}, device); };
  for (const int64_t rows : {1, 2, 8, 64, 512}) {
    const FlashDecodeShape of = shape(rows);
    EXPECT_TRUE(of.ordered);
    EXPECT_EQ(of.ring(), shape(1).ring()) << rows << " rows";
    EXPECT_EQ(FlashDecodeShape::kSections % of.splits, 0) << rows << " rows";
  }
}

// What the bits above are of: a network whose rows no tile could hold would have them from matrix-vector kernels.
TEST(Numerics, InvariantMultiplyInTilesThatHoldTheirRows) {
  LoadedModel loaded("llama/one_kv_head");
  if (!loaded.device.properties().has_clusters()) GTEST_SKIP() << "the device has no clusters";
  const ModelConfig& config = loaded.model.config();
  for (const int64_t rows : {1, 8, 40}) {
    const StepShape step = step_shape(network_form(network_of(config)), rows, rows, std::nullopt, Numerics::invariant);
    size_t products = 0;
    for (const KernelRequest& request : decoder_kernel_requests(loaded.kernels, config, step)) {
      if (request.name.find("project") == std::string::npos && request.name.find("gate_up") == std::string::npos)
        continue;
      const auto held = std::ranges::find(request.constants, "kHeld", &Constant::name);
      ASSERT_NE(held, request.constants.end()) << request.name << " of " << rows << " rows";
      EXPECT_GT(std::get<int64_t>(held->value.held), 0) << request.name << " of " << rows << " rows";
      ++products;
    }
    EXPECT_GE(products, 4u) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, NumericsOf, testing::ValuesIn(models_of_numerics()), golden_test_name);

}  // namespace
}  // namespace nodewright
