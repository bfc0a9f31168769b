// norm_hidden against a double-precision reference; which rows it stores.
#include "kernels_src/residual/norm_hidden.h"

#include <gtest/gtest.h>

#include "kernels_src/residual/norm.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::norm_hidden_test {
namespace {

size_t element(int64_t i) { return static_cast<size_t>(i); }

struct NormHiddenCase {
  int64_t rows, cols;
  Norm norm;
  int32_t n_live;
  std::vector<float> x, projected;  // the latter with a post norm, else empty
  std::vector<bf16> gain, shift, post_gain;

  static constexpr float kEps = 1e-2f;

  NormHiddenCase(int64_t row_count, int64_t col_count, Norm kind)
      : rows(row_count),
        cols(col_count),
        norm(kind),
        n_live(static_cast<int32_t>(row_count)),
        x(poisoned<float>(element(rows * stride()))) {
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t i = 0; i < cols; ++i)
        x[element(m * stride() + i)] = static_cast<float>(0.3 + noise(element(m), element(i)));
    for (int64_t i = 0; i < cols; ++i) {
      gain.push_back(to_bf16(0.5 + noise(99, element(i))));
      if (norm == Norm::layer) shift.push_back(to_bf16(2 * noise(98, element(i))));
    }
  }

  int64_t stride() const { return (cols + 7) / 8 * 8; }

  void add_projected() {
    projected = poisoned<float>(x.size());
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t i = 0; i < cols; ++i)
        projected[element(m * stride() + i)] = static_cast<float>(5 * noise(element(50 + m), element(i)));
    for (int64_t i = 0; i < cols; ++i) post_gain.push_back(to_bf16(0.5 + noise(97, element(i))));
  }

  std::vector<float> run() const {
    const bool adds = !projected.empty();
    const Guarded<float> input("x", x), joining("projected", projected), hidden("y", element(rows * cols));
    const Guarded<bf16> gains("gain", gain), shifts("shift", shift), post_gains("post_gain", post_gain);
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    const auto kernel = machine().kernels.kernel<NormHidden>(
        {"norm_hidden", {{"kNorm", static_cast<int64_t>(norm)}, {"kPostNorm", adds ? 1 : 0}}},
        norm_hidden_shape(static_cast<unsigned>(rows)));
    run_node(kernel, {.from = {.x = input,
                               .gain = gains,
                               .shift = norm == Norm::layer ? shifts.weight() : Weight<bf16>{},
                               .projected = adds ? joining.view() : View<float>{},
                               .post_gain = adds ? post_gains.weight() : Weight<bf16>{},
                               .eps = kEps},
                      .y = hidden,
                      .n_live = live,
                      .stride = stride()});
    return hidden.read();
  }

  // The sums are off by some 2^-20 of themselves, and a handful of roundings follow.
  void expect(const std::vector<float>& y) const {
    for (int64_t m = 0; m < rows; ++m) {
      const double one = norm == Norm::rms_one_plus ? 1 : 0;
      double mean = 0, squares = 0, of_projected = 0;
      for (size_t i = 0; i < element(cols) && !projected.empty(); ++i)
        of_projected += std::pow(static_cast<double>(projected[element(m * stride()) + i]), 2);
      const double post_scale = 1 / std::sqrt(of_projected / static_cast<double>(cols) + kEps);
      const auto added = [&](int64_t i) {
        if (projected.empty()) return 0.0;
        return projected[element(m * stride() + i)] * post_scale * (value_of(post_gain[element(i)]) + one);
      };
      const auto at = [&](int64_t i) { return static_cast<double>(x[element(m * stride() + i)]) + added(i); };
      for (int64_t i = 0; i < cols && norm == Norm::layer; ++i) mean += at(i) / static_cast<double>(cols);
      for (int64_t i = 0; i < cols; ++i) squares += (at(i) - mean) * (at(i) - mean);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
      for (int64_t i = 0; i < cols; ++i) {
        const float found = y[element(m * cols + i)];
        if (m >= n_live) {
          ASSERT_TRUE(std::isnan(found)) << "row " << m << " is padding, and element " << i << " was stored";
          continue;
        }
        const double scaled = scale * (value_of(gain[element(i)]) + one),
                     shifted = norm == Norm::layer ? value_of(shift[element(i)]) : 0;
        ASSERT_NEAR(
            found, (at(i) - mean) * scaled + shifted,
            0x1p-20 * ((std::abs(at(i)) + std::abs(added(i)) + std::abs(mean)) * std::abs(scaled) + std::abs(shifted)))
            << "row " << m << ", element " << i << " of " << cols;
      }
    }
  }
};

TEST(NormHidden, AgreesWithTheReferenceAtOddSizes) {
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus, Norm::layer})
    for (const int64_t cols : {1, 52, 100, 256, 1152, 2049}) {
      const NormHiddenCase c(3, cols, norm);
      c.expect(c.run());
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(NormHidden, AgreesWithTheReferenceWhereSomethingJoinsX) {
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus})
    for (const int64_t cols : {1, 52, 100, 1152}) {
      NormHiddenCase c(3, cols, norm);
      c.add_projected();
      c.n_live = 2;
      c.expect(c.run());
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(NormHidden, StoresNoPaddedRow) {
  for (int32_t n_live = 1; n_live <= 4; ++n_live) {
    NormHiddenCase c(4, 100, Norm::layer);
    c.n_live = n_live;
    c.expect(c.run());
  }
}

}  // namespace
}  // namespace nodewright::test::norm_hidden_test
