// norm_add against a double-precision reference; which rows and elements it stores.
#include "kernels_src/residual/norm_add.h"

#include <gtest/gtest.h>

#include "kernels_src/residual/norm.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::norm_add_test {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct NormAddCase {
  int64_t rows, cols;
  Norm norm;
  int32_t n_live;
  std::vector<float> x, residual;
  std::vector<bf16> gain, bias;
  bool biased = false;

  static constexpr float kEps = 1e-2f;

  NormAddCase(int64_t row_count, int64_t col_count, Norm kind)
      : rows(row_count),
        cols(col_count),
        norm(kind),
        n_live(static_cast<int32_t>(row_count)),
        x(poisoned<float>(at(rows * stride()))),
        residual(x) {
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t i = 0; i < cols; ++i) {
        x[at(m * stride() + i)] = static_cast<float>(noise(at(m), at(i)));
        residual[at(m * stride() + i)] = static_cast<float>(3 * noise(at(50 + m), at(i)));
      }
    for (int64_t i = 0; i < cols; ++i) gain.push_back(to_bf16(0.5 + noise(99, at(i))));
    for (int64_t i = 0; i < cols; ++i) bias.push_back(to_bf16(noise(98, at(i))));
  }

  int64_t stride() const { return (cols + 7) / 8 * 8; }

  std::vector<float> run() const {
    const Guarded<float> input("x", x), sum("residual", residual);
    const Guarded<bf16> gains("gain", gain), biases("bias", bias);
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    const auto kernel = machine().kernels.kernel<NormAdd>(
        {"norm_add", {{"kNorm", static_cast<int64_t>(norm)}, {"kBias", biased ? 1 : 0}}},
        norm_add_shape(static_cast<unsigned>(rows)));
    run_node(kernel, {.x = input,
                      .gain = gains,
                      .residual = sum,
                      .n_live = live,
                      .stride = stride(),
                      .eps = kEps,
                      .bias = biased ? biases : Frozen<bf16>{}});
    return sum.read();
  }

  // The sum of squares is off by some 2^-20 of itself, and a handful of roundings follow.
  void expect(const std::vector<float>& y) const {
    for (int64_t m = 0; m < rows; ++m) {
      const auto input = [&](int64_t i) { return x[at(m * stride() + i)] + (biased ? value_of(bias[at(i)]) : 0.0); };
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += std::pow(input(i), 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
      for (int64_t i = 0; i < stride(); ++i) {
        const float before = residual[at(m * stride() + i)], found = y[at(m * stride() + i)];
        if (m >= n_live || i >= cols) {
          ASSERT_EQ(std::memcmp(&found, &before, sizeof(float)), 0) << "row " << m << ", element " << i;
          continue;
        }
        const double added = input(i) * scale * (value_of(gain[at(i)]) + (norm == Norm::rms_one_plus ? 1 : 0));
        ASSERT_NEAR(found, before + added, 0x1p-20 * (std::abs(before) + std::abs(added)))
            << "row " << m << ", element " << i << " of " << cols;
      }
    }
  }
};

TEST(NormAdd, AgreesWithTheReferenceAtOddSizes) {
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus})
    for (const int64_t cols : {1, 52, 100, 256, 1152, 2049}) {
      NormAddCase c(3, cols, norm);
      for (const bool biased : {false, true}) {
        c.biased = biased;
        c.expect(c.run());
        if (testing::Test::HasFatalFailure()) return;
      }
    }
}

TEST(NormAdd, LeavesPaddedRowsAlone) {
  for (int32_t n_live = 1; n_live <= 4; ++n_live) {
    NormAddCase c(4, 100, Norm::rms_one_plus);
    c.n_live = n_live;
    std::fill(c.x.begin() + n_live * c.stride(), c.x.end(), kNaN);
    c.expect(c.run());
  }
}

}  // namespace
}  // namespace nodewright::test::norm_add_test
