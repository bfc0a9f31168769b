// What stands around library products, norm_rows, gate and add_bias, against double-precision references; which rows
// and elements they store.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels_src/elementwise/activation.h"
#include "kernels_src/elementwise/add_bias.h"
#include "kernels_src/elementwise/gate.h"
#include "kernels_src/residual/norm.h"
#include "kernels_src/residual/norm_rows.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::product_neighbours_test {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }
constexpr int64_t kRowCount = 3;
constexpr int32_t kLiveRows = 2;

// A result in fp32 is off by some 2^-20 of itself, and is rounded to 8 bits.
double rounded(double v) { return (0x1p-8 + 0x1p-20) * std::abs(v) + 0x1p-133; }

TEST(NormRows, AgreeWithTheReferenceAtOddSizesAndLeavePaddedRowsAlone) {
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus, Norm::layer})
    for (const int64_t cols : {1, 52, 256, 2049, 4104}) {
      const int64_t stride = (cols + 7) / 8 * 8;
      const float eps = 1e-2f;
      std::vector<float> x(at(kRowCount * stride), kNaN);
      std::vector<bf16> gain, shift;
      for (int64_t m = 0; m < kRowCount; ++m)
        for (int64_t i = 0; i < cols; ++i) x[at(m * stride + i)] = static_cast<float>(3 * noise(at(m), at(i)) + 1);
      for (int64_t i = 0; i < cols; ++i) gain.push_back(to_bf16(0.5 + noise(99, at(i))));
      for (int64_t i = 0; i < cols; ++i) shift.push_back(to_bf16(noise(98, at(i))));
      const Guarded<float> input("x", x);
      const Guarded<bf16> gains("gain", gain), shifts("shift", shift), y("y", at(kRowCount * stride));
      const Guarded<int32_t> live("n_live", std::vector{kLiveRows});
      run_node(machine().kernels.kernel<NormRows>(
                   {"norm_rows", {{"kNorm", static_cast<int64_t>(norm)}, {"kCols", cols}, {"kPostNorm", 0}}},
                   norm_rows_shape(kRowCount)),
               {.from = {.x = input, .gain = gains, .shift = norm == Norm::layer ? shifts : Frozen<bf16>{}, .eps = eps},
                .y = y,
                .n_live = live});
      const std::vector<bf16> found = y.read();
      for (int64_t m = 0; m < kRowCount; ++m) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < cols && norm == Norm::layer; ++i)
          mean += static_cast<double>(x[at(m * stride + i)]) / static_cast<double>(cols);
        for (int64_t i = 0; i < cols; ++i) squares += std::pow(x[at(m * stride + i)] - mean, 2);
        const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
        for (int64_t i = 0; i < stride; ++i) {
          const bf16 v = found[at(m * stride + i)];
          if (m >= kLiveRows) {
            ASSERT_EQ(v.bits, 0xffff) << "row " << m;
            continue;
          }
          double expected = 0, apart = 0;  // and what its mean and its shift may cost
          if (i < cols) {
            expected = (x[at(m * stride + i)] - mean) * scale * (value_of(gain[at(i)]) + (norm == Norm::rms_one_plus));
            apart = 0x1p-20 * std::abs(expected) + 0x1p-20 * scale * std::abs(mean);
            if (norm == Norm::layer) expected += value_of(shift[at(i)]);
          }
          ASSERT_NEAR(value_of(v), expected, rounded(expected) + apart)
              << "row " << m << ", element " << i << " of " << cols;
        }
      }
    }
}

// The mean is 1000 times the deviation.
TEST(NormRows, OfALayerNormSurviveALargeMean) {
  constexpr int64_t kCols = 768;
  std::vector<float> x;
  for (int64_t i = 0; i < kCols; ++i) x.push_back(static_cast<float>(1000 + noise(1, at(i))));
  const Guarded<float> input("x", x);
  const Guarded<bf16> gains("gain", std::vector<bf16>(at(kCols), to_bf16(1))),
      shifts("shift", std::vector<bf16>(at(kCols), to_bf16(0))), y("y", at(kCols));
  const Guarded<int32_t> live("n_live", std::vector{1});
  run_node(machine().kernels.kernel<NormRows>(
               {"norm_rows", {{"kNorm", static_cast<int64_t>(Norm::layer)}, {"kCols", kCols}, {"kPostNorm", 0}}},
               norm_rows_shape(1)),
           {.from = {.x = input, .gain = gains, .shift = shifts, .eps = 0}, .y = y, .n_live = live});
  double mean = 0, squares = 0;
  for (const float v : x) mean += static_cast<double>(v) / kCols;
  for (const float v : x) squares += std::pow(v - mean, 2);
  const std::vector<bf16> found = y.read();
  for (int64_t i = 0; i < kCols; ++i) {
    const double expected = (x[at(i)] - mean) / std::sqrt(squares / kCols);
    // The mean is off by some 2^-24 of 1000, a ten thousandth of the deviation.
    ASSERT_NEAR(value_of(found[at(i)]), expected, rounded(expected) + 1e-3) << "element " << i;
  }
}

struct GateCase {
  Activation activation;
  bool gated, biased;
  unsigned shaped_for;  // rows for which the launch is shaped, of which kRowCount are there
};

TEST(GateRows, AgreeWithTheReferenceAtOddSizesAndLeavePaddedRowsAlone) {
  for (const auto& [activation, gated, biased, shaped_for] : {GateCase{Activation::silu, true, false, kRowCount},
                                                              {Activation::gelu_tanh, true, false, kRowCount},
                                                              {Activation::silu, true, true, kRowCount},
                                                              {Activation::gelu_tanh, false, true, kRowCount},
                                                              {Activation::silu, false, false, kRowCount},
                                                              {Activation::silu, true, false, 256},
                                                              {Activation::silu, true, true, 256},
                                                              {Activation::gelu_tanh, false, true, 256}})
    for (const int64_t outputs : {1, 50, 1024, 1030, 2051}) {
      const int64_t unit = gated ? 2 : 1, x_stride = (unit * outputs + 7) / 8 * 8, y_stride = (outputs + 7) / 8 * 8;
      std::vector<bf16> x(at(kRowCount * x_stride), to_bf16(kNaN)), bias;
      for (int64_t m = 0; m < kRowCount; ++m)
        for (int64_t i = 0; i < unit * outputs; ++i) x[at(m * x_stride + i)] = to_bf16(4 * noise(at(m), at(i)));
      x.resize(at((kRowCount - 1) * x_stride + unit * outputs));  // no padding after the last row
      for (int64_t i = 0; i < unit * outputs; ++i) bias.push_back(to_bf16(noise(97, at(i))));
      const Guarded<bf16> input("x", x), biases("bias", bias), y("y", at(kRowCount * y_stride));
      const Guarded<int32_t> live("n_live", std::vector{kLiveRows});
      LaunchShape shape = gate_shape(shaped_for, outputs, gated);
      shape.grid[1] = kRowCount;
      run_node(machine().kernels.kernel<Gate>({"gate",
                                               {{"kActivation", static_cast<int64_t>(activation)},
                                                {"kGated", gated ? 1 : 0},
                                                {"kBias", biased ? 1 : 0},
                                                {"kRagged", unit * outputs % 8 == 0 ? 0 : 1},
                                                {"kPasses", gate_passes(shaped_for)}}},
                                              shape),
               {.from = {input, x_stride},
                .to = {y, y_stride},
                .n_live = live,
                .outputs = outputs,
                .bias = biased ? biases : Frozen<bf16>{}});
      const std::vector<bf16> found = y.read();
      for (int64_t m = 0; m < kRowCount; ++m)
        for (int64_t i = 0; i < y_stride; ++i) {
          const bf16 v = found[at(m * y_stride + i)];
          if (m >= kLiveRows || i >= outputs) {
            ASSERT_EQ(v.bits, 0xffff) << "row " << m << ", element " << i;
            continue;
          }
          const auto input_of = [&](int64_t n) {
            return value_of(x[at(m * x_stride + n)]) + (biased ? value_of(bias[at(n)]) : 0);
          };
          const double g = input_of(unit * i), u = gated ? input_of(2 * i + 1) : 1;
          const double f = activation == Activation::silu
                               ? g / (1 + std::exp(-g))
                               : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
          // 1 + tanh loses what tanh is close to -1; a sum in fp32 is off by 2^-24 of itself, and f's slope below 2.
          ASSERT_NEAR(value_of(v), f * u, rounded(f * u) + 0x1p-21 * std::abs(g * u))
              << "row " << m << ", element " << i << " of " << outputs;
        }
    }
}

// Rows of even and odd strides: of four elements at once, and one by one.
TEST(AddBias, AddsToTheElementsThatCountOfLiveRowsAlone) {
  for (const auto& [outputs, y_stride] : {std::pair{1, 8}, {50, 50}, {51, 56}, {77, 77}, {2048, 2048}, {4100, 4104}}) {
    std::vector<float> y(at(kRowCount * y_stride), kNaN);
    std::vector<bf16> bias;
    for (int64_t m = 0; m < kRowCount; ++m)
      for (int64_t i = 0; i < outputs; ++i) y[at(m * y_stride + i)] = static_cast<float>(noise(at(m), at(i)));
    for (int64_t i = 0; i < outputs; ++i) bias.push_back(to_bf16(noise(97, at(i))));
    const Guarded<float> rows("y", y);
    const Guarded<bf16> biases("bias", bias);
    const Guarded<int32_t> live("n_live", std::vector{kLiveRows});
    run_node(machine().kernels.kernel<AddBias>({"add_bias", {{"kScale", 0}}}, add_bias_shape(kRowCount, outputs)),
             {.y = rows, .bias = biases, .n_live = live, .outputs = outputs, .y_stride = y_stride});
    for (int64_t m = 0; m < kLiveRows; ++m)
      for (int64_t i = 0; i < outputs; ++i) y[at(m * y_stride + i)] += static_cast<float>(value_of(bias[at(i)]));
    EXPECT_TRUE(same_bits(rows.read(), y)) << outputs << " of " << y_stride;
  }
}

}  // namespace
}  // namespace nodewright::test::product_neighbours_test
