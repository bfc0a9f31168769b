// A tuning file comes back as it was written, and what it should not hold is refused with its name.
#include "models/tuning/step_tuning.h"

#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

class TuningFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) { return scratch_.write("tuning.json", text); }
  // The words with which a file of one step is refused.
  std::string refusal(const std::string& step) {
    return error_of(
        [&] { read_tuning(write(R"({"format": 2, "device": "d", "model": "m", "steps": [)" + step + "]}")); });
  }

  ScratchFolder scratch_;
};

TEST_F(TuningFile, ComesBackAsItWasWritten) {
  Tuning tuning{.key = {"NVIDIA H200", "hidden 2048"}, .steps = {}, .products = {}};
  tuning.steps[1] = {.arithmetic = {}, .attend = {.splits = 33, .warps = 8, .ring = 2}, .shared = {.carveout = 57}};
  tuning.steps[1].gate_up.matvec = {.threads = 192, .batch = 8, .blocks_per_sm = 3};
  tuning.steps[1].head.matvec.threads = 64;
  tuning.steps[8] = {.arithmetic = Arithmetic::tiles};
  tuning.steps[8].down.tile = {.warps = 5, .rows = 16, .piece = 3, .ring = 7};
  tuning.steps[16].down.product = {.config = {.algorithm = 66, .tile = 18, .stages = 36, .split_k = 2, .cluster = 3},
                                   .as_rows = 64};
  tuning.products = {.qkv = {{17, 64}, {65, 48}, {97, 0}}, .out = {}, .gate_up = {}, .down = {}, .head = {{40, 512}}};
  const Tuning read = read_tuning(write(tuning_json(tuning)));
  EXPECT_EQ(read.key, tuning.key);
  EXPECT_TRUE(read.steps == tuning.steps);
  EXPECT_TRUE(read.of(8) == tuning.steps[8]);
  EXPECT_TRUE(read.of(2) == StepTuning{});
  EXPECT_TRUE(read.products == tuning.products);
}

TEST_F(TuningFile, GivesProductsTheSizeOfTheLargestNumberOfRowsThatIsNotAboveTheirs) {
  Tuning tuning;
  tuning.products.qkv = {{17, 64}, {65, 48}};
  tuning.steps[64].qkv.product.config.algorithm = 2;
  tuning.steps[65].out.product.config.algorithm = 2;
  for (const auto& [rows, as_rows] : {std::pair{16, 0}, {17, 64}, {63, 64}, {64, 0}, {65, 48}, {512, 48}})
    EXPECT_EQ(tuning.of(rows).qkv.product.as_rows, as_rows) << rows;
  EXPECT_EQ(tuning.of(64).qkv.product.config.algorithm, 2) << "what a step says itself stays";
  EXPECT_TRUE(tuning.of(65).down.product == ProductTuning{});
}

TEST_F(TuningFile, LosesAlgorithmsByTheirPlaceAsOlderProgramsWroteThem) {
  const std::string text = R"({"format": 2, "device": "a", "model": "b", "steps": [{"rows": 64, "attend": {"ring": 2},
      "gate_up.product": {"algorithm": 8}, "down.product": {"algorithm": 4, "as_rows": 64},
      "head.product": {"algorithm": 66, "tile": 18, "stages": 36}}]})";
  const StepTuning step = read_tuning(write(text)).of(64);
  EXPECT_EQ(step.attend.ring, 2);
  EXPECT_TRUE(step.gate_up.product == ProductTuning{});
  EXPECT_TRUE(step.down.product == ProductTuning{});
  EXPECT_EQ(step.head.product.config.tile, 18);
}

TEST_F(TuningFile, IsRefusedWithWhatIsWrong) {
  for (const auto& [step, words] :
       {std::pair{"{}", "steps[0].rows is missing"},
        {"7", "steps[0] is not an object"},
        {R"({"rows": 8193})", "steps[0].rows is 8193"},
        {R"({"rows": 1}, {"rows": 1})", "steps[1].rows is 1, as of a step before"},
        {R"({"rows": 1, "arithmetic": "abacus"})", "steps[0].arithmetic is 'abacus'"},
        {R"({"rows": 1, "attend": {"splits": 65}})", "steps[0].attend.splits is 65"},
        {R"({"rows": 1, "attend": {"split": 6}})", "steps[0].attend.'split'"},
        {R"({"rows": 1, "shared": {"carveout": 101}})", "steps[0].shared.carveout is 101"},
        {R"({"rows": 1, "attention": {}})", "steps[0].'attention'"},
        {R"({"rows": 1, "out.matvec": {"threads": 100}})", "expected a multiple of 32"},
        {R"({"rows": 1, "out.matvec": {"batch": 3}})", "expected a power of two"},
        {R"({"rows": 1, "attend": {"warps": 5}})", "attend.warps is 5, expected a power of two"},
        {R"({"rows": 1, "out.tile": {"rows": 12}})", "steps[0].out.tile.rows is 12, expected a multiple of 8"},
        {R"({"rows": 1, "out.tile": {"ring": -1}})", "steps[0].out.tile.ring is -1"},
        {R"({"rows": 1, "out.product": {"as_rows": 8193}})", "steps[0].out.product.as_rows is 8193"}}) {
    const std::string text = refusal(step);
    EXPECT_NE(text.find(words), std::string::npos) << step << ": " << text;
    EXPECT_NE(text.find("tuning.json"), std::string::npos) << text;
  }
  for (const auto& [file, words] :
       {std::pair{R"({"format": 1, "steps": []})", "format is not 2"},
        {R"({"format": 2})", "steps is not a list"},
        {R"({"format": 2, "steps": [], "gpu": 1})", "'gpu' is no part of a tuning"},
        {R"({"format": 2, "steps": [], "products": {"up": {}}})", "products.'up'"},
        {R"({"format": 2, "steps": [], "products": {"out": {"a": 1}}})",
         "products.out.'a' is no number of rows, 1 to 8192"},
        {R"({"format": 2, "steps": [], "products": {"out": {"9": -1}}})", "products.out.9 is -1"},
        {"[]", "object"}}) {
    const std::string text = error_of([&, file = file] { read_tuning(write(file)); });
    EXPECT_NE(text.find(words), std::string::npos) << file << ": " << text;
    EXPECT_TRUE(text.starts_with("cannot read tuning '")) << text;
  }
}

// A matrix in another format is multiplied by other kernels.
TEST(TuningKey, NamesTheFormatOfTheWeights) {
  ModelConfig config;
  const auto sizes_with = [&](const WeightLayout& down) {
    config.layouts.down = down;
    return model_sizes(config);
  };
  const std::string bf16 = sizes_with({});
  EXPECT_EQ(sizes_with({WeightCode::int4, false, 1, 64}), bf16 + ", int4, groups of 64");
  EXPECT_EQ(sizes_with({WeightCode::fp8}), bf16 + ", fp8");
  EXPECT_EQ(sizes_with({WeightCode::fp8, true}), bf16 + ", fp8 in blocks");
}

// Attention reads pages of another format, so that what is measured with it is its own; what is not is bf16's.
TEST(TuningKey, NamesTheFormatOfTheCache) {
  ModelConfig config;
  const TuningKey bf16 = tuning_key("a GPU", config);
  config.cache = CacheFormat::fp8;
  const TuningKey fp8 = tuning_key("a GPU", config);
  EXPECT_EQ(bf16.model, model_sizes(config));
  EXPECT_EQ(fp8.model, bf16.model + ", cache fp8");
  EXPECT_EQ(nearer_bf16(fp8), bf16);
  EXPECT_EQ(nearer_bf16(bf16), bf16);
  EXPECT_NE(tuning_file(fp8), tuning_file(bf16));
  config.rounds_head = true;
  const TuningKey both = tuning_key("a GPU", config);
  EXPECT_EQ(both.model, bf16.model + ", head fp8, cache fp8");
  EXPECT_EQ(nearer_bf16(both).model, bf16.model + ", head fp8");
  EXPECT_EQ(nearer_bf16(nearer_bf16(both)), bf16);
}

TEST(ShippedTuning, OfACacheInBf16CountsForOneInFp8) {
  const ScratchFolder folder;
  folder.write("config.json", read_text(test::source_dir() / "tests/golden/configs/llama-3.2-1b.json"));
  ModelConfig config = read_model_config(folder.path());
  const Tuning bf16 = shipped_tuning(tuning_key("NVIDIA H200", config));
  EXPECT_FALSE(bf16.steps.empty());
  config.cache = CacheFormat::fp8;
  const Tuning fp8 = shipped_tuning(tuning_key("NVIDIA H200", config));
  EXPECT_TRUE(fp8.steps == bf16.steps);
}

// The kernel of a head in FP8 is another, and so are its numbers.
TEST(TuningFor, AHeadInFp8LeavesThatOfBf16Out) {
  ModelConfig config;
  Tuning tuning{.key = tuning_key("a GPU", config), .steps = {}, .products = {}};
  tuning.steps[1].head.matvec.threads = 64, tuning.steps[1].out.matvec.threads = 96;
  tuning.products.head[40] = 2;
  config.cache = CacheFormat::fp8;
  EXPECT_TRUE(tuning_for(tuning, tuning_key("a GPU", config)).steps == tuning.steps);
  config.rounds_head = true;
  const Tuning rounded = tuning_for(tuning, tuning_key("a GPU", config));
  EXPECT_TRUE(rounded.steps.at(1).head == StepTuning{}.head);
  EXPECT_EQ(rounded.steps.at(1).out.matvec.threads, 96);
  EXPECT_TRUE(rounded.products == ProductSizes{});
}

}  // namespace
}  // namespace nodewright
