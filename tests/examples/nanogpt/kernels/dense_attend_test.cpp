// dense_attend against softmax(q k^T) v in double, over a cache whose unused slots hold NaN.
#include "examples/nanogpt/kernels/dense_attend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/examples/nanogpt/kernels/nanogpt_kernels.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::dense_attend_test {
namespace {

struct DenseAttendCase {
  int64_t heads = 3, head_dim = 8, context = 64, rows = 1, first = 0;
  int32_t n_live = -1;  // -1: all

  struct Result {
    std::vector<float> y, cache;
  };

  int64_t width() const { return heads * head_dim; }
  int64_t qkv_stride() const { return (3 * width() + 3) / 4 * 4 + 4; }
  int64_t y_stride() const { return width() + 3; }
  int32_t live() const { return n_live < 0 ? static_cast<int32_t>(rows) : n_live; }

  // q, k or v (part 0, 1, 2) of a position: scores of a few units, so that some keys matter more than others.
  float element(int part, int64_t position, int64_t head, int64_t d) const {
    const double size = part == 2 ? 1.0 : 3.0 / std::sqrt(std::sqrt(static_cast<double>(head_dim)));
    return static_cast<float>(
        size * noise(static_cast<uint64_t>(part + 3 * head), static_cast<uint64_t>(position * 1000 + d)));
  }
  size_t cache_at(int part, int64_t head, int64_t position, int64_t d) const {  // part 0: keys, 1: values
    return static_cast<size_t>(((part * heads + head) * context + position) * head_dim + d);
  }
  float scale() const { return static_cast<float>(M_LOG2E / std::sqrt(static_cast<double>(head_dim))); }

  // Slots before `first` are filled; the others hold NaN.
  std::vector<float> cache_before() const {
    std::vector<float> cache = poisoned<float>(static_cast<size_t>(2 * width() * context));
    for (int part = 0; part < 2; ++part)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t p = 0; p < first; ++p)
          for (int64_t d = 0; d < head_dim; ++d) cache[cache_at(part, h, p, d)] = element(part + 1, p, h, d);
    return cache;
  }

  Result run() const {
    std::vector<float> qkv = poisoned<float>(static_cast<size_t>(rows * qkv_stride()));
    std::vector<int32_t> at;
    for (int64_t m = 0; m < rows; ++m) {
      at.push_back(static_cast<int32_t>(first + m));
      for (int part = 0; part < 3; ++part)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t d = 0; d < head_dim; ++d)
            qkv[static_cast<size_t>(m * qkv_stride() + part * width() + h * head_dim + d)] =
                element(part, first + m, h, d);
    }
    const DenseAttendShape shape{rows, heads, head_dim};
    const Guarded<float> in("qkv", qkv), cache("cache", cache_before()), y("y", static_cast<size_t>(rows * y_stride()));
    const Guarded<int32_t> positions("positions", at), n("n_live", std::vector{live()});
    run_node(nanogpt_kernel_cache().kernel<DenseAttend>(
                 {"dense_attend", {{"kHeads", heads}, {"kHeadDim", head_dim}, {"kSlices", shape.slices()}}},
                 shape.launch_shape()),
             {.qkv = in,
              .positions = positions,
              .n_live = n,
              .cache = cache,
              .y = y,
              .context = context,
              .qkv_stride = qkv_stride(),
              .y_stride = y_stride(),
              .scale = scale()});
    return {y.read(), cache.read()};
  }

  // Row m of y. The scores come from head_dim products, exp2 turns their error into a relative one of the weights, and
  // the weighted values add up over the keys.
  void expect_values(const Result& result) const {
    for (int64_t m = 0; m < live(); ++m)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t position = first + m;
        std::vector<double> weights;
        double total = 0.0, largest = 0.0;
        for (int64_t p = 0; p <= position; ++p) {
          double score = 0.0;
          for (int64_t d = 0; d < head_dim; ++d)
            score += static_cast<double>(element(0, position, h, d)) * static_cast<double>(element(1, p, h, d));
          largest = std::max(largest, std::abs(score * static_cast<double>(scale())));
          weights.push_back(std::exp2(score * static_cast<double>(scale())));
          total += weights.back();
        }
        const double chain = static_cast<double>(head_dim) * largest + static_cast<double>(position) + 20;
        for (int64_t d = 0; d < head_dim; ++d) {
          double expected = 0.0, absolute = 0.0;
          for (int64_t p = 0; p <= position; ++p) {
            const double term = weights[static_cast<size_t>(p)] / total * static_cast<double>(element(2, p, h, d));
            expected += term;
            absolute += std::abs(term);
          }
          ASSERT_NEAR(result.y[static_cast<size_t>(m * y_stride() + h * head_dim + d)], expected,
                      2 * chain * 0x1p-24 * absolute)
              << "head " << h << " of " << heads << ", position " << position << ", element " << d;
        }
      }
  }

  // The live rows' slots hold their keys and values, all others what they held.
  void expect_cache(const Result& result) const {
    std::vector<float> expected = cache_before();
    for (int part = 0; part < 2; ++part)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t p = first; p < std::min(first + live(), context); ++p)
          for (int64_t d = 0; d < head_dim; ++d) expected[cache_at(part, h, p, d)] = element(part + 1, p, h, d);
    EXPECT_TRUE(same_bits(result.cache, expected));
  }

  void expect_untouched(const Result& result) const {
    const std::vector<float> untouched = poisoned<float>(static_cast<size_t>(y_stride()));
    for (int64_t m = 0; m < rows; ++m) {
      const auto written = static_cast<size_t>(m < live() && first + m < context ? width() : 0);
      EXPECT_TRUE(same_bits(row_of(result.y, m, y_stride(), y_stride()).subspan(written),
                            std::span<const float>(untouched).subspan(written)))
          << "row " << m;
    }
  }

  void check() const {
    const Result result = run();
    expect_values(result);
    expect_cache(result);
    expect_untouched(result);
  }
};

TEST(DenseAttend, AgreesWithTheReferenceAtEveryLengthOfAContext) {
  for (int64_t first = 0; first < 64; ++first) DenseAttendCase{.first = first}.check();
}

TEST(DenseAttend, AgreesWithTheReferenceForOddHeads) {
  for (const int64_t head_dim : {1, 5, 12, 16, 64, 100, 256})
    for (const int64_t first : {0, 1, 40}) DenseAttendCase{.heads = 2, .head_dim = head_dim, .first = first}.check();
}

TEST(DenseAttend, ReadsTheNewKeysOfTheSameLaunchFromItsInput) {
  for (const int64_t first : {0, 1, 30})
    for (const int64_t rows : {2, 17, 34}) DenseAttendCase{.rows = rows, .first = first}.check();
}

TEST(DenseAttend, LeavesPaddedRowsAlone) {
  for (int32_t n_live = 0; n_live <= 3; ++n_live) DenseAttendCase{.rows = 3, .first = 2, .n_live = n_live}.check();
}

TEST(DenseAttend, StopsAtTheEndOfTheContext) {
  DenseAttendCase c{.context = 40, .rows = 3, .first = 39};
  const auto result = c.run();
  c.expect_cache(result);
  c.expect_untouched(result);
}

TEST(DenseAttend, IsTheSameInOneLaunchAsTokenByToken) {
  const DenseAttendCase together{.rows = 20, .first = 5};
  const auto all = together.run();
  for (int64_t m = 0; m < 20; ++m) {
    const auto one = DenseAttendCase{.first = 5 + m}.run();
    EXPECT_TRUE(same_bits(row_of(one.y, 0, together.y_stride(), together.width()),
                          row_of(all.y, m, together.y_stride(), together.width())))
        << "row " << m;
  }
}

}  // namespace
}  // namespace nodewright::test::dense_attend_test
