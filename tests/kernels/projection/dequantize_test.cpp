// Quantized matrices as bf16, exactly rounded.
#include "kernels_src/projection/dequantize.h"

#include "models/lowering/lowering.h"
#include "tests/kernels/one_node.h"
#include "tests/kernels/projection/drawn_groups.h"

namespace nodewright::test::dequantize_test {
namespace {

constexpr int64_t kOutputs = 261, kCols = 640;  // a last block of threads that is not whole

// Random words, of which those after the rows are scales: `word(i)`.
template <class Word>
std::vector<uint32_t> words_of(const WeightLayout& layout, const Word& word) {
  std::vector<uint32_t> words(static_cast<size_t>(layout.bytes(kOutputs, kCols) / 4));
  const auto first_scale = static_cast<size_t>(kOutputs * layout.row_bytes(kCols) / 4);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = i < first_scale ? static_cast<uint32_t>(random_bits(2, i)) : word(i - first_scale);
  return words;
}

// value(row, column): of W.
template <class Value>
void expect_rounded(const WeightLayout& layout, const std::vector<uint32_t>& words, const Value& value) {
  std::vector<bf16> weight(words.size() * 2);
  std::memcpy(weight.data(), words.data(), words.size() * sizeof(uint32_t));
  const Guarded<bf16> w("weight", weight), y("y", static_cast<size_t>(kOutputs * kCols));
  run_node(machine().kernels.kernel<Dequantize>({"dequantize", constants_of(layout.constants(), {{"kStride", kCols}})},
                                                dequantize_shape(layout, kOutputs, kCols)),
           {.weight = w, .y = y, .outputs = kOutputs});
  std::vector<bf16> expected;
  for (int64_t n = 0; n < kOutputs; ++n)
    for (int64_t k = 0; k < kCols; ++k) expected.push_back(to_bf16(value(n, k)));
  EXPECT_TRUE(same_bits(y.read(), expected));
}

TEST(Dequantize, RoundsIntegersWithWhatTheirGroupsShare) {
  for (const auto& [code, group] : {std::pair{WeightCode::int4, 32},
                                    {WeightCode::int4, 64},
                                    {WeightCode::int4, 128},
                                    {WeightCode::q4, 32},
                                    {WeightCode::q4_offset, 32},
                                    {WeightCode::q8, 16},
                                    {WeightCode::q8, 32},
                                    {WeightCode::q8_offset, 16},
                                    {WeightCode::q8_offset, 32}}) {
    const WeightLayout layout{code, false, 1, group};
    SCOPED_TRACE(std::string(name_of(layout)) + ", groups of " + std::to_string(group));
    const DrawnGroups drawn(layout, kOutputs, kCols, 1);
    std::vector<uint32_t> words(drawn.bytes.size() / 4);
    std::memcpy(words.data(), drawn.bytes.data(), drawn.bytes.size());
    // With an offset the value is rounded to fp32 first.
    expect_rounded(layout, words, [&](int64_t n, int64_t k) {
      return static_cast<double>(static_cast<float>(drawn.values[static_cast<size_t>(n * kCols + k)]));
    });
  }
}

TEST(Dequantize, RoundsFp8WithTheScaleOfEachRowOrBlock) {
  for (const auto& [in_blocks, unit] : {std::pair{false, 1}, {true, 1}, {true, 2}}) {
    const WeightLayout layout{WeightCode::fp8, in_blocks, unit};
    const auto scale = [](size_t i) { return static_cast<float>(noise(3, i)); };
    std::vector<uint32_t> words = words_of(layout, [&](size_t i) {
      uint32_t bits;
      const float value = scale(i);
      std::memcpy(&bits, &value, sizeof bits);
      return bits;
    });
    const auto code = [&](int64_t n, int64_t k) {
      return static_cast<uint8_t>(words[static_cast<size_t>((n * kCols + k) / 4)] >> k % 4 * 8);
    };
    for (uint32_t& word : std::span(words).first(static_cast<size_t>(kOutputs * kCols / 4)))
      word &= 0xf7f7f7f7u;  // no NaN
    expect_rounded(layout, words, [&](int64_t n, int64_t k) {
      const int64_t of = in_blocks ? layout.group_of(n) * WeightLayout::scale_stride(kCols) + k / 128 : n;
      return static_cast<double>(static_cast<float>(value_of_fp8(code(n, k))) * scale(static_cast<size_t>(of)));
    });
  }
}

}  // namespace
}  // namespace nodewright::test::dequantize_test
