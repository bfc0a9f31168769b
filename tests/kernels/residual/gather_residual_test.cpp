// gather_residual against a double-precision reference: which rows it takes, from where, and what joins them.
#include "kernels_src/residual/gather_residual.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels_src/residual/norm.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::gather_residual_test {
namespace {

constexpr float kEps = 1e-2f;

size_t index_of(int64_t i) { return static_cast<size_t>(i); }

struct GatherCase {
  int64_t cols = 100;
  std::vector<int32_t> rows = {4, 0, 2};  // of a step of five
  int32_t n_live = 3;
  Norm norm = Norm::rms;
  bool post_norm = false;  // the kernel may add what joins
  bool joins = false;      // and something does
  bool gained = false;     // what the next norm wants is left, too
  static constexpr int64_t kStepRows = 5;

  int64_t stride() const { return (cols + 7) / 8 * 8; }
  int64_t residual() const { return 24; }
  int64_t joining() const { return residual() + kStepRows * stride() + 8; }

  // Padding of the residual is zero, that of what joins it is not.
  std::vector<float> activations() const {
    std::vector<float> values = poisoned<float>(index_of(joining() + kStepRows * stride()));
    for (int64_t m = 0; m < kStepRows; ++m)
      for (int64_t i = 0; i < stride(); ++i) {
        values[index_of(residual() + m * stride() + i)] =
            i < cols ? static_cast<float>(noise(index_of(m), index_of(i))) : 0.0f;
        if (i < cols)
          values[index_of(joining() + m * stride() + i)] = static_cast<float>(5 * noise(index_of(50 + m), index_of(i)));
      }
    return values;
  }

  std::vector<bf16> gain() const {
    std::vector<bf16> gain;
    for (int64_t i = 0; i < cols; ++i) gain.push_back(to_bf16(0.5 + noise(97, index_of(i))));
    return gain;
  }

  void check() const {
    const std::vector<float> x = activations();
    const Guarded<float> from("from", x), y("y", rows.size() * index_of(stride()));
    const Guarded<int64_t> places("places", std::vector<int64_t>{residual(), joins ? joining() : -1});
    const Guarded<int32_t> of_step("rows", rows), live("n_live", std::vector{n_live});
    const Guarded<bf16> gains("post_gain", gain()), left("gained", y.read().size());
    const Guarded<float> squares("squares", rows.size());
    const auto kernel = machine().kernels.kernel<GatherResidual>(
        {"gather_residual",
         {{"kNorm", static_cast<int64_t>(norm)}, {"kPostNorm", post_norm ? 1 : 0}, {"kLeavesGained", gained ? 1 : 0}}},
        gather_residual_shape(static_cast<unsigned>(rows.size())));
    run_node(kernel, {.from = from,
                      .places = places,
                      .rows = of_step,
                      .n_live = live,
                      .post_gain = post_norm ? gains.weight() : Weight<bf16>{},
                      .y = y,
                      .stride = stride(),
                      .eps = kEps,
                      .next = gained ? ResidualOut{.gain = gains.weight(), .gained = left, .squares = squares}
                                     : ResidualOut{}});
    expect(x, y.read());
    if (gained) expect_gained(y.read(), left.read(), squares.read());
  }

  void expect_gained(const std::vector<float>& y, const std::vector<bf16>& left,
                     const std::vector<float>& squares) const {
    for (size_t m = 0; m < index_of(n_live); ++m) {
      double sum = 0;
      for (size_t i = 0; i < index_of(cols); ++i) {
        const float value = y[m * index_of(cols) + i];
        sum += std::pow(static_cast<double>(value), 2);
        ASSERT_EQ(value_of(left[m * index_of(cols) + i]), value_of(to_bf16(value * value_of(gain()[i]))))
            << "row " << m << ", element " << i;
      }
      ASSERT_NEAR(squares[m], sum, 1e-5 * sum) << "row " << m;
    }
  }

  void expect(const std::vector<float>& x, const std::vector<float>& y) const {
    for (size_t m = 0; m < rows.size(); ++m) {
      const float* row = x.data() + residual() + rows[m] * stride();
      const float* joined = x.data() + joining() + rows[m] * stride();
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += std::pow(static_cast<double>(joined[i]), 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
      for (int64_t i = 0; i < stride(); ++i) {
        const float found = y[m * index_of(stride()) + index_of(i)];
        if (static_cast<int32_t>(m) >= n_live) {
          ASSERT_TRUE(std::isnan(found)) << "row " << m << " is padding, and element " << i << " was stored";
        } else if (!joins || i >= cols) {
          ASSERT_EQ(found, row[i]) << "row " << m << ", element " << i;
        } else {
          const double added =
              joined[i] * scale * (value_of(gain()[index_of(i)]) + (norm == Norm::rms_one_plus ? 1 : 0));
          ASSERT_NEAR(found, row[i] + added, 0x1p-20 * (std::abs(row[i]) + std::abs(added)))
              << "row " << m << ", element " << i;
        }
      }
    }
  }
};

TEST(GatherResidual, TakesTheRowsThatItIsTold) {
  for (const int64_t cols : {1, 52, 100, 256, 1152, 2049})
    for (const bool post_norm : {false, true}) {
      GatherCase{.cols = cols, .post_norm = post_norm}.check();
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(GatherResidual, AddsTheNormOfWhatJoins) {
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus})
    for (const int64_t cols : {1, 52, 100, 1152}) {
      GatherCase{.cols = cols, .norm = norm, .post_norm = true, .joins = true}.check();
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(GatherResidual, LeavesRowsTimesTheNextGainAndTheirSquares) {
  for (const int64_t cols : {8, 256, 2048}) GatherCase{.cols = cols, .n_live = 2, .gained = true}.check();
}

TEST(GatherResidual, StoresNoRowPastTheLiveOnes) {
  for (int32_t n_live = 0; n_live <= 3; ++n_live)
    GatherCase{.n_live = n_live, .post_norm = true, .joins = true}.check();
}

}  // namespace
}  // namespace nodewright::test::gather_residual_test
