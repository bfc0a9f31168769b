// Weights that are drawn instead of read: for every released config, in the shapes that loading asks for.
#include "models/weights/drawn_weights.h"

#include <cmath>
#include <map>
#include <string>

#include "models/weights/weights.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

TEST(DrawnWeights, AreTheSameEachTimeAndOthersInEachTensorAndRow) {
  const TensorInfo one{"a.weight", Dtype::kBF16, {8, 100}}, other{"b.weight", Dtype::kBF16, {8, 100}};
  const auto row_of = [](const TensorInfo& tensor, int64_t row) {
    std::vector<bf16> values(100);
    DrawnTensor(tensor, 100).row(row, values);
    std::vector<uint16_t> bits;
    for (const bf16 v : values) bits.push_back(v.bits);
    return bits;
  };
  EXPECT_EQ(row_of(one, 3), row_of(one, 3));
  EXPECT_NE(row_of(one, 3), row_of(one, 4));
  EXPECT_NE(row_of(one, 3), row_of(other, 3));
}

TEST(DrawnWeights, HaveTheMeanAndTheDeviationOfTheirKind) {
  struct Kind {
    TensorInfo tensor;
    double mean, deviation;
  };
  for (const Kind& kind :
       {Kind{{"l.q_proj.weight", Dtype::kBF16, {64, 400}}, 0, 0.05},
        Kind{{"norm.weight", Dtype::kBF16, {25600}}, 1, 0.1}, Kind{{"l.q_proj.bias", Dtype::kBF16, {25600}}, 0, 0.1}}) {
    const int64_t cols = kind.tensor.shape.size() == 1 ? 1 : 400;
    double sum = 0, squares = 0;
    std::vector<bf16> values(static_cast<size_t>(cols));
    for (int64_t row = 0; row < 25600 / cols; ++row) {
      DrawnTensor(kind.tensor, cols).row(row, values);
      for (const bf16 v : values) {
        const double value = std::bit_cast<float>(uint32_t{v.bits} << 16);
        sum += value, squares += value * value;
      }
    }
    const double mean = sum / 25600, deviation = std::sqrt(squares / 25600 - mean * mean);
    EXPECT_NEAR(mean, kind.mean, 0.003) << kind.tensor.name;
    EXPECT_NEAR(deviation, kind.deviation, 0.02 * kind.deviation) << kind.tensor.name;
  }
}

TEST(DrawnWeights, FillEveryFamilysFootprint) {
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "tests/golden/configs")) {
    if (entry.path().extension() != ".json") continue;
    const ScratchFolder folder;
    folder.write("config.json", nodewright::read_text(entry.path()));
    ModelConfig config;
    try {
      config = read_model_config(folder.path());
    } catch (const Error&) {  // a family that is not read
      continue;
    }
    const Checkpoint checkpoint = Checkpoint::dummy(folder.path());
    const WeightFootprint footprint = weight_footprint(checkpoint, config);
    EXPECT_GT(footprint.bytes, uint64_t{500} << 20) << entry.path();
    EXPECT_GE(footprint.tensors.size(), static_cast<size_t>(6 * config.layers)) << entry.path();
  }
}

}  // namespace
}  // namespace nodewright
