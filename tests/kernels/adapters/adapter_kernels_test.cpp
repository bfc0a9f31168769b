// shrink, norm_shrink and expand against double-precision references: rows of several adapters, of none, and padding.
#include <gtest/gtest.h>

#include "kernels_src/adapters/expand.h"
#include "kernels_src/adapters/shrink.h"
#include "kernels_src/adapters/shrink_shape.h"
#include "kernels_src/residual/norm.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::adapter_kernels_test {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct AdapterCase {
  int64_t cols, outputs, parts, rank;
  std::vector<int32_t> ids = {2, -1, 0, 2, 1};  // of three slots; the last row is padding
  int32_t n_live = 4;

  int64_t rows() const { return std::ssize(ids); }
  int64_t stride() const { return (cols + 7) / 8 * 8; }
  int64_t ranks() const { return parts * rank; }
  int64_t slot() const { return std::max(ranks() * stride(), outputs * rank) + 8; }
  // Outputs that part 1 and part 2 begin with: of three unequal parts, or of one.
  int64_t second() const { return parts == 3 ? outputs / 2 : outputs; }
  int64_t third() const { return parts == 3 ? outputs / 2 + outputs / 4 : outputs; }

  double a(int64_t id, int64_t r, int64_t k) const { return rounded_to_bf16(noise(at(10 + id), at(r * 1000 + k))); }
  double b(int64_t id, int64_t n, int64_t j) const { return rounded_to_bf16(noise(at(20 + id), at(n * 1000 + j))); }
  double scale(int64_t id, int64_t part) const {
    return 0.5 + static_cast<double>(id) + 0.25 * static_cast<double>(part);
  }

  std::vector<bf16> all_a() const {
    std::vector<bf16> memory(at(3 * slot()), bf16{0});
    for (int64_t id = 0; id < 3; ++id)
      for (int64_t r = 0; r < ranks(); ++r)
        for (int64_t k = 0; k < cols; ++k) memory[at(id * slot() + r * stride() + k)] = to_bf16(a(id, r, k));
    return memory;
  }
  std::vector<bf16> all_b() const {
    std::vector<bf16> memory(at(3 * slot()), bf16{0});
    for (int64_t id = 0; id < 3; ++id)
      for (int64_t n = 0; n < outputs; ++n)
        for (int64_t j = 0; j < rank; ++j) memory[at(id * slot() + n * rank + j)] = to_bf16(b(id, n, j));
    return memory;
  }
  std::vector<float> all_scales() const {
    std::vector<float> memory(at(3 * slot() / 2), 0.0f);
    for (int64_t id = 0; id < 3; ++id)
      for (int64_t p = 0; p < parts; ++p) memory[at(id * slot() / 2 + p)] = static_cast<float>(scale(id, p));
    return memory;
  }

  // What a row's adapter makes of x, given as a function of the column.
  template <class X>
  void expect_shrunk(const std::vector<float>& h, int64_t m, const X& x) const {
    for (int64_t r = 0; r < ranks(); ++r) {
      const float found = h[at(m * ranks() + r)];
      const int32_t id = ids[at(m)];
      if (m >= n_live) {
        ASSERT_TRUE(std::isnan(found)) << "row " << m << " is padding";
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t k = 0; k < cols && id >= 0; ++k) sum += a(id, r, k) * x(k), size += std::abs(a(id, r, k) * x(k));
      const double expected = id < 0 ? 0 : scale(id, r / rank) * sum;
      ASSERT_NEAR(found, expected, 4 * 0x1p-20 * size) << "row " << m << ", rank " << r;
    }
  }
};

const AdapterCase kCases[] = {{60, 100, 3, 8}, {100, 36, 1, 16}, {520, 1000, 3, 16}, {2048, 24, 1, 8}};

template <class A>
Kernel<A> shrink_kernel(const AdapterCase& c, const char* name, bool normed, std::vector<Constant> more) {
  const ShrinkShape shape{c.rows(), c.cols, c.stride(), c.ranks(), normed};
  more.insert(more.end(), {{"kAdapterRank", c.rank}, {"kBias", 0}});
  return machine().kernels.kernel<A>({name, constants_of(shape.constants(), more)}, shape.launch_shape());
}

TEST(Shrink, MultipliesEachRowByItsOwnAdapter) {
  for (const AdapterCase& c : kCases) {
    SCOPED_TRACE(c.cols);
    std::vector<bf16> x = poisoned<bf16>(at(c.rows() * c.stride()));
    const auto value = [](int64_t m, int64_t k) { return rounded_to_bf16(noise(at(m), at(k))); };
    for (int64_t m = 0; m < c.rows(); ++m)
      for (int64_t k = 0; k < c.cols; ++k) x[at(m * c.stride() + k)] = to_bf16(value(m, k));
    const Guarded<bf16> rows("x", x), a("a", c.all_a());
    const Guarded<float> scales("scales", c.all_scales()), h("h", at(c.rows() * c.ranks()));
    const Guarded<int32_t> ids("ids", c.ids), live("n_live", std::vector{c.n_live});
    run_node(shrink_kernel<Shrink>(c, "shrink", false, {}),
             {.adapter =
                  {.a = a, .scales = scales, .ids = ids, .n_live = live, .ranks = c.ranks(), .slot_elements = c.slot()},
              .from = {rows, c.stride()},
              .h = h});
    const std::vector<float> found = h.read();
    for (int64_t m = 0; m < c.rows(); ++m) c.expect_shrunk(found, m, [&](int64_t k) { return value(m, k); });
  }
}

TEST(NormShrink, NormsTheRowFirst) {
  constexpr float kEps = 1e-3f;
  for (const AdapterCase& c : kCases) {
    SCOPED_TRACE(c.cols);
    std::vector<float> x(at(c.rows() * c.stride()), 0.0f);
    std::vector<bf16> gain;
    for (int64_t m = 0; m < c.rows(); ++m)
      for (int64_t k = 0; k < c.cols; ++k) x[at(m * c.stride() + k)] = static_cast<float>(3 * noise(at(m), at(k)));
    for (int64_t k = 0; k < c.cols; ++k) gain.push_back(to_bf16(1 + 0.5 * noise(90, at(k))));
    const Guarded<bf16> gains("gain", gain), a("a", c.all_a());
    const Guarded<float> rows("x", x), scales("scales", c.all_scales()), h("h", at(c.rows() * c.ranks()));
    const Guarded<int32_t> ids("ids", c.ids), live("n_live", std::vector{c.n_live});
    run_node(shrink_kernel<NormShrink>(c, "norm_shrink", true,
                                       {{"kNorm", static_cast<int64_t>(Norm::rms)}, {"kPostNorm", 0}}),
             {.adapter =
                  {.a = a, .scales = scales, .ids = ids, .n_live = live, .ranks = c.ranks(), .slot_elements = c.slot()},
              .from = {.x = rows, .gain = gains, .eps = kEps},
              .h = h});
    const std::vector<float> found = h.read();
    for (int64_t m = 0; m < c.rows(); ++m) {
      double squares = 0;
      for (int64_t k = 0; k < c.cols; ++k) squares += std::pow(static_cast<double>(x[at(m * c.stride() + k)]), 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(c.cols) + kEps);
      c.expect_shrunk(found, m, [&](int64_t k) { return x[at(m * c.stride() + k)] * scale * value_of(gain[at(k)]); });
    }
  }
}

TEST(Expand, AddsWhatEachRowsAdapterGives) {
  for (const AdapterCase& c : kCases) {
    SCOPED_TRACE(c.outputs);
    const int64_t stride = (c.outputs + 7) / 8 * 8;
    std::vector<float> y = poisoned<float>(at((c.rows() - 1) * stride + c.outputs)), h;
    for (int64_t m = 0; m < c.rows(); ++m)
      for (int64_t n = 0; n < c.outputs; ++n) y[at(m * stride + n)] = static_cast<float>(noise(at(40 + m), at(n)));
    for (int64_t i = 0; i < c.rows() * c.ranks(); ++i) h.push_back(static_cast<float>(noise(60, at(i))));
    const Guarded<float> sums("y", y), shrunk("h", h);
    const Guarded<bf16> b("b", c.all_b());
    const Guarded<int32_t> ids("ids", c.ids), live("n_live", std::vector{c.n_live});
    const auto kernel =
        machine().kernels.kernel<Expand>({"expand", {{"kAdapterRank", c.rank}, {"kScale", 0x3e800000}}},  // 0.25
                                         expand_shape(static_cast<unsigned>(c.rows()), c.outputs));
    run_node(kernel, {.y = sums,
                      .adapter = {.h = shrunk, .b = b, .ids = ids, .slot_elements = c.slot()},
                      .n_live = live,
                      .outputs = c.outputs,
                      .y_stride = stride,
                      .parts = c.parts,
                      .second = c.second(),
                      .third = c.third()});
    const std::vector<float> found = sums.read();
    for (int64_t m = 0; m < c.rows(); ++m)
      for (int64_t n = 0; n < c.outputs; ++n) {
        const size_t i = at(m * stride + n);
        const int32_t id = c.ids[at(m)];
        if (id < 0 || m >= c.n_live) {
          ASSERT_EQ(found[i], y[i]) << "row " << m << " has no adapter, or is padding";
          continue;
        }
        const int64_t part = n < c.second() ? 0 : n < c.third() ? 1 : 2;
        double sum = 0;
        for (int64_t j = 0; j < c.rank; ++j) sum += c.b(id, n, j) * h[at((m * c.parts + part) * c.rank + j)];
        ASSERT_NEAR(found[i], y[i] + 0.25 * sum, 1e-5) << "row " << m << ", output " << n;
      }
  }
}

}  // namespace
}  // namespace nodewright::test::adapter_kernels_test
