// Rounding to FP8 and int4 against a search among all codes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "models/weights/formats/packed_codes.h"
#include "models/weights/rounding/fp8_rounding.h"
#include "models/weights/rounding/int4_rounding.h"
#include "tests/kernels/numbers.h"
#include "tests/models/checkpoint_files.h"

namespace nodewright {
namespace {

using test::noise;

// The code of the value closest to `value`, of two as close the one with an even last bit: the two are neighbours.
uint8_t nearest_fp8(float value) {
  uint8_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (uint8_t code = 0; code < 0x7f; ++code) {
    const double distance = std::abs(std::abs(double{value}) - test::value_of_fp8(code));
    if (distance < least || (distance == least && code % 2 == 0)) best = code, least = distance;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

std::vector<uint8_t> codes_of(const std::vector<float>& values, float scale = 1) {
  std::vector<uint8_t> codes(values.size());
  round_to_fp8(values, scale, codes.data());
  return codes;
}

TEST(Fp8Rounding, IsToTheNearestCodeAndTiesToEven) {
  std::vector<float> values = {0.0f, -0.0f, 1e-30f, std::numeric_limits<float>::denorm_min()};
  for (uint8_t code = 0; code + 1 < 0x7f; ++code) {  // each code, and about the middle to the next, subnormals first
    const auto low = static_cast<float>(test::value_of_fp8(code)),
               high = static_cast<float>(test::value_of_fp8(static_cast<uint8_t>(code + 1))), middle = (low + high) / 2;
    for (const float value : {low, high, middle, std::nextafter(middle, low), std::nextafter(middle, high)})
      for (const float sign : {1.0f, -1.0f}) values.push_back(sign * value);
  }
  for (size_t i = 0; i < 1000; ++i) values.push_back(static_cast<float>(noise(7, i)) * 448);
  const std::vector<uint8_t> codes = codes_of(values);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(codes[i], nearest_fp8(values[i])) << values[i];
}

TEST(Fp8Rounding, EndsAtTheLargestCode) {
  for (const float value : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(codes_of({value})[0], 0x7e) << value;
    EXPECT_EQ(codes_of({-value})[0], 0xfe) << value;
  }
}

TEST(Fp8Rounding, MakesTheLargestValueOfARowTheLargestCode) {
  const TensorInfo tensor{.name = "w", .shape = {1, 3}};
  for (const float largest : {1e-35f, 0.1f, 3.0f, 448.0f, 1e30f, std::numeric_limits<float>::max()}) {
    const std::vector<float> row = {largest / 3, -largest, largest / 7};
    EXPECT_EQ(largest_magnitude(row, tensor, 0), largest);
    const float scale = fp8_scale(row, tensor, 0);
    EXPECT_EQ(scale, static_cast<float>(test::rounded_to_bf16(scale)));
    EXPECT_GE(scale, largest / 448);
    EXPECT_LE(scale, largest / 448 * 1.008f);  // bf16 numbers are at most that far apart
    const std::vector<uint8_t> codes = codes_of(row, scale);
    EXPECT_EQ(codes[1], 0xfe) << largest;
    EXPECT_EQ(codes[0], nearest_fp8(row[0] / scale)) << largest;
  }
  const float of_zeros = fp8_scale(0);
  EXPECT_TRUE(std::isnormal(of_zeros));
  EXPECT_EQ(codes_of({0, -0.0f}, of_zeros), (std::vector<uint8_t>{0, 0x80}));
}

TEST(Fp8Rounding, RefusesWhatIsNotFinite) {
  const TensorInfo tensor{.name = "layers.3.up", .shape = {5, 40}};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (const size_t at : {size_t{0}, size_t{17}, size_t{39}}) {
      std::vector<float> row(40, 1.0f);
      row[at] = bad;
      expect_error([&] { largest_magnitude(row, tensor, 4); }, {"layers.3.up", "row 4", "not finite"});
    }
}

// ---- int4

std::vector<int> unpacked(const std::vector<float>& values, float scale) {
  std::vector<uint32_t> words(values.size() / 8);
  pack_int4(values, scale, words.data());
  std::vector<uint8_t> codes(values.size());
  for (size_t i = 0; i < words.size(); ++i) unpack_word(words[i], 4, codes.data() + 8 * i);
  std::vector<int> numbers;
  for (const uint8_t code : codes) numbers.push_back(code - 8);
  return numbers;
}

int nearest_int4(double value) {
  int best = -8;
  for (int code = -7; code <= 7; ++code) {
    const double distance = std::abs(value - code), least = std::abs(value - best);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best;
}

double squared_error_of(const std::vector<float>& values, double scale) {
  double sum = 0;
  for (const float value : values) {
    const double left = value - nearest_int4(value / scale) * scale;
    sum += left * left;
  }
  return sum;
}

TEST(Int4Rounding, PacksTheNearestCodesFirstLowest) {
  std::vector<uint32_t> words(1);
  pack_int4(std::vector<float>{-8, -7, 0, 1, 2, 6, 7, -1}, 1, words.data());
  EXPECT_EQ(words[0], 0x7fea9810u);
  std::vector<float> values;
  for (float value = -10; value <= 10; value += 0.125f) values.push_back(value);  // ties among them
  while (values.size() % 8 != 0) values.push_back(0);
  for (const float scale : {1.0f, 0.5f, 0.37109375f}) {
    const std::vector<int> codes = unpacked(values, scale);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(codes[i], nearest_int4(values[i] / scale)) << values[i] << " / " << scale;
  }
}

TEST(Int4Rounding, TakesTheCandidateWithTheLeastError) {
  for (const double outlier : {0.0, 1.5, 4.0, 30.0})
    for (size_t columns : {size_t{32}, size_t{128}}) {
      std::vector<float> values(columns);
      for (size_t i = 0; i < columns; ++i)
        values[i] = static_cast<float>(noise(3, i) + noise(4, i) + noise(5, i)) * 0.01f;
      values[5] += static_cast<float>(outlier) * 0.01f;
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::abs(value));
      const float scale = int4_scale(values, largest);
      EXPECT_EQ(scale, static_cast<float>(test::rounded_to_bf16(scale)));
      double least = std::numeric_limits<double>::infinity();
      for (int quarters = 28; quarters <= 56; ++quarters)
        least = std::min(least, squared_error_of(values, test::rounded_to_bf16(double{largest * 4 / quarters})));
      EXPECT_LE(squared_error_of(values, scale), least * 1.0001) << outlier << ", " << columns;  // sums in fp32 there
      if (outlier == 0.0 && columns == 128) {
        EXPECT_LT(squared_error_of(values, scale), 0.95 * squared_error_of(values, largest / 7));
      }
    }
}

TEST(Int4Rounding, GivesZerosANormalScale) {
  const std::vector<float> zeros(32, 0.0f);
  const float scale = int4_scale(zeros, 0);
  EXPECT_TRUE(std::isnormal(scale));
  EXPECT_EQ(unpacked(zeros, scale), std::vector<int>(32, 0));
}

}  // namespace
}  // namespace nodewright
