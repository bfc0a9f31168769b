// What stands around library products, norm_rows and gate, against double-precision references; which rows and elements
// they store.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels_src/projection/activation.h"
#include "kernels_src/projection/gate.h"
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
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus})
    for (const int64_t cols : {1, 52, 256, 2049, 4104}) {
      const int64_t stride = (cols + 7) / 8 * 8;
      const float eps = 1e-2f;
      std::vector<float> x(at(kRowCount * stride), kNaN);
      std::vector<bf16> gain;
      for (int64_t m = 0; m < kRowCount; ++m)
        for (int64_t i = 0; i < cols; ++i) x[at(m * stride + i)] = static_cast<float>(3 * noise(at(m), at(i)));
      for (int64_t i = 0; i < cols; ++i) gain.push_back(to_bf16(0.5 + noise(99, at(i))));
      const Guarded<float> input("x", x);
      const Guarded<bf16> gains("gain", gain), y("y", at(kRowCount * stride));
      const Guarded<int32_t> live("n_live", std::vector{kLiveRows});
      run_node(machine().kernels.kernel<NormRows>(
                   {"norm_rows", {{"kNorm", static_cast<int64_t>(norm)}, {"kCols", cols}}}, norm_rows_shape(kRowCount)),
               {.x = input, .gain = gains, .y = y, .n_live = live, .eps = eps});
      const std::vector<bf16> found = y.read();
      for (int64_t m = 0; m < kRowCount; ++m) {
        double squares = 0;
        for (int64_t i = 0; i < cols; ++i) squares += std::pow(static_cast<double>(x[at(m * stride + i)]), 2);
        const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
        for (int64_t i = 0; i < stride; ++i) {
          const bf16 v = found[at(m * stride + i)];
          if (m >= kLiveRows) {
            ASSERT_EQ(v.bits, 0xffff) << "row " << m;
            continue;
          }
          const double expected =
              i < cols ? x[at(m * stride + i)] * scale * (value_of(gain[at(i)]) + (norm == Norm::rms_one_plus ? 1 : 0))
                       : 0;
          ASSERT_NEAR(value_of(v), expected, rounded(expected)) << "row " << m << ", element " << i << " of " << cols;
        }
      }
    }
}

TEST(GateRows, AgreeWithTheReferenceAtOddSizesAndLeavePaddedRowsAlone) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh})
    for (const int64_t outputs : {1, 50, 1024, 1030}) {
      const int64_t x_stride = (2 * outputs + 7) / 8 * 8, y_stride = (outputs + 7) / 8 * 8;
      std::vector<bf16> x(at(kRowCount * x_stride), to_bf16(kNaN));
      for (int64_t m = 0; m < kRowCount; ++m)
        for (int64_t i = 0; i < 2 * outputs; ++i) x[at(m * x_stride + i)] = to_bf16(4 * noise(at(m), at(i)));
      const Guarded<bf16> input("x", x), y("y", at(kRowCount * y_stride));
      const Guarded<int32_t> live("n_live", std::vector{kLiveRows});
      run_node(machine().kernels.kernel<Gate>({"gate", {{"kActivation", static_cast<int64_t>(activation)}}},
                                              gate_shape(kRowCount, outputs)),
               {.x = input, .y = y, .n_live = live, .outputs = outputs, .x_stride = x_stride, .y_stride = y_stride});
      const std::vector<bf16> found = y.read();
      for (int64_t m = 0; m < kRowCount; ++m)
        for (int64_t i = 0; i < y_stride; ++i) {
          const bf16 v = found[at(m * y_stride + i)];
          if (m >= kLiveRows || i >= outputs) {
            ASSERT_EQ(v.bits, 0xffff) << "row " << m << ", element " << i;
            continue;
          }
          const double g = value_of(x[at(m * x_stride + 2 * i)]), u = value_of(x[at(m * x_stride + 2 * i + 1)]);
          const double f = activation == Activation::silu
                               ? g / (1 + std::exp(-g))
                               : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
          // 1 + tanh loses what tanh is close to -1.
          ASSERT_NEAR(value_of(v), f * u, rounded(f * u) + 0x1p-21 * std::abs(g * u))
              << "row " << m << ", element " << i;
        }
    }
}

}  // namespace
}  // namespace nodewright::test::product_neighbours_test
