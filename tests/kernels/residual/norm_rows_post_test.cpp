// norm_rows of a residual that something joins, against a double-precision reference; which rows it stores.
#include <gtest/gtest.h>

#include "kernels_src/residual/norm.h"
#include "kernels_src/residual/norm_rows.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::norm_rows_post_test {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct Case {
  int64_t rows, cols;
  Norm norm;
  int32_t n_live;
  std::vector<float> x, projected;
  std::vector<bf16> gain, post_gain;

  static constexpr float kEps = 1e-2f;

  Case(int64_t row_count, int64_t col_count, Norm kind)
      : rows(row_count),
        cols(col_count),
        norm(kind),
        n_live(static_cast<int32_t>(row_count)),
        x(at(rows * stride()), 0.0f),
        projected(poisoned<float>(x.size())) {
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t i = 0; i < cols; ++i) {
        x[at(m * stride() + i)] = static_cast<float>(3 * noise(at(m), at(i)));
        projected[at(m * stride() + i)] = static_cast<float>(noise(at(50 + m), at(i)));
      }
    for (int64_t i = 0; i < cols; ++i) gain.push_back(to_bf16(0.5 + noise(99, at(i))));
    for (int64_t i = 0; i < cols; ++i) post_gain.push_back(to_bf16(0.5 + noise(98, at(i))));
  }

  int64_t stride() const { return (cols + 7) / 8 * 8; }

  // The sums of squares are off by some 2^-20 of themselves, and a handful of roundings follow.
  void check() const {
    const Guarded<float> residual("x", x), joining("projected", projected), next("x_next", x.size());
    const Guarded<bf16> gains("gain", gain), post_gains("post_gain", post_gain), normed("y", x.size());
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    const bool bare = norm == Norm::none;
    run_node(machine().kernels.kernel<NormRows>(
                 {"norm_rows", {{"kNorm", static_cast<int64_t>(norm)}, {"kCols", cols}, {"kPostNorm", 1}}},
                 norm_rows_shape(static_cast<unsigned>(rows))),
             {.from = {.x = residual,
                       .gain = bare ? Frozen<bf16>{} : gains,
                       .projected = joining,
                       .post_gain = post_gains,
                       .x_next = next,
                       .eps = kEps},
              .y = normed,
              .n_live = live});
    const std::vector<float> sums = next.read();
    const std::vector<bf16> y = normed.read();
    const double one = norm == Norm::rms_one_plus ? 1 : 0;
    for (int64_t m = 0; m < rows; ++m) {
      const auto of = [&](const std::vector<float>& v, int64_t i) {
        return static_cast<double>(v[at(m * stride() + i)]);
      };
      double joined = 0, squares = 0;
      for (int64_t i = 0; i < cols; ++i) joined += std::pow(of(projected, i), 2);
      const double post = 1 / std::sqrt(joined / static_cast<double>(cols) + kEps);
      const auto sum = [&](int64_t i) {
        return of(x, i) + of(projected, i) * post * (value_of(post_gain[at(i)]) + one);
      };
      for (int64_t i = 0; i < cols; ++i) squares += std::pow(sum(i), 2);
      const double scale = bare ? 1 : 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
      for (int64_t i = 0; i < stride(); ++i) {
        const float left = sums[at(m * stride() + i)];
        const double found = value_of(y[at(m * stride() + i)]);
        if (m >= n_live) {
          ASSERT_TRUE(std::isnan(left) && std::isnan(found)) << "row " << m << " is padding, element " << i;
          continue;
        }
        const double expected = i < cols ? sum(i) : 0, gained = bare ? 1 : i < cols ? value_of(gain[at(i)]) + one : 0;
        ASSERT_NEAR(left, expected, 0x1p-19 * (std::abs(expected) + 1)) << "row " << m << ", sum " << i;
        ASSERT_NEAR(found, expected * scale * gained, 0x1p-8 * std::abs(expected * scale * gained) + 0x1p-18)
            << "row " << m << ", element " << i << " of " << cols;
      }
    }
  }
};

TEST(NormRowsAfterAPostNorm, AgreesWithTheReferenceAtOddSizes) {
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus, Norm::none})
    for (const int64_t cols : {1, 52, 100, 256, 1152, 2049, 4104}) {
      Case(3, cols, norm).check();
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(NormRowsAfterAPostNorm, LeavesPaddedRowsAlone) {
  for (int32_t n_live = 1; n_live <= 4; ++n_live) {
    Case c(4, 100, Norm::rms_one_plus);
    c.n_live = n_live;
    std::fill(c.projected.begin() + n_live * c.stride(), c.projected.end(), kNaN);
    c.check();
  }
}

}  // namespace
}  // namespace nodewright::test::norm_rows_post_test
