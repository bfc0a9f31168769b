// Quantized checkpoints against what the libraries that wrote them make of them, bit by bit.
#include "tests/models/weights/formats/format_golden.h"

namespace nodewright {
namespace {

TEST(GoldenFormats, AreDecodedToTheBitsOfTheirLibraries) {
  ASSERT_GE(test::all_formats().size(), 28u);
  for (const std::string& name : test::formats_and_experts()) {
    const test::EditedFormat copy(name);
    const nlohmann::json expected = test::expected_matrices(copy.path());
    for (const int64_t step : {1000, 7}) {  // whole, and in slices that begin inside a word or a block
      const auto matrices = test::decode_all(copy.path(), step);
      for (const auto& [matrix, about] : expected.items())
        EXPECT_EQ(test::digest_of(matrices.at(matrix)), about.at("digest").get<std::string>())
            << name << " " << matrix << " by " << step;
    }
  }
}

// GPTQModel names the version under either key.
TEST(GoldenFormats, OfGptqsSecondVersionAreKnownByFormatAlone) {
  test::EditedFormat edited("gptq_v2");
  edited.config({{"checkpoint_format", nullptr}, {"format", "gptq_v2"}});
  const auto matrices = test::decode_all(edited.path());
  const nlohmann::json expected = test::expected_matrices(edited.path());
  for (const auto& [matrix, about] : expected.items())
    EXPECT_EQ(test::digest_of(matrices.at(matrix)), about.at("digest").get<std::string>()) << matrix;
}

}  // namespace
}  // namespace nodewright
