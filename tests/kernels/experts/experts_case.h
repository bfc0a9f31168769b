// A mixture's layer of odd sizes and what it gives in doubles, for tests of its kernels.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels_src/experts/expert_shape.h"
#include "tests/kernels/projection/matvec.h"

namespace nodewright::test {

inline size_t at(int64_t i) { return static_cast<size_t>(i); }
inline int64_t round_up_to_8(int64_t n) { return (n + 7) / 8 * 8; }

// Rows of x, the experts that each has, and one matrix of all experts.
struct ExpertsCase {
  int64_t rows, experts, chosen, cols, outputs;
  int32_t n_live;
  std::vector<bf16> x;  // [rows or pairs, stride], columns after the last are NaN
  WeightLayout layout;
  std::vector<bf16> weight;  // [experts * outputs, stride], zero there; of codes the bytes of their layout
  std::vector<double> coded_values, parts;  // [experts * outputs, stride] of codes (MatvecData)
  std::vector<int32_t> of_rows;             // [rows, chosen], of rows that do not count -1
  std::vector<float> weights;               // [rows, chosen]

  // `live` rows count. Half the rows have the first expert first, so that it has more than others.
  ExpertsCase(int64_t row_count, int64_t live, int64_t expert_count, int64_t chosen_count, int64_t col_count,
              int64_t output_count, const WeightLayout& layout_of_weight = {})
      : rows(row_count),
        experts(expert_count),
        chosen(chosen_count),
        cols(col_count),
        outputs(output_count),
        n_live(static_cast<int32_t>(live)),
        layout(layout_of_weight) {
    if (layout.is_quantized())
      draw_codes();
    else
      draw_bf16();
    of_rows.assign(at(rows * chosen), -1);
    weights.assign(at(rows * chosen), kNaN);
    for (int64_t m = 0; m < live; ++m) {
      std::vector<int32_t> order(at(experts));
      std::iota(order.begin(), order.end(), 0);
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(7 + at(m), i) % i]);
      if (m % 2 == 0) std::swap(order[0], *std::ranges::find(order, 0));
      for (int64_t j = 0; j < chosen; ++j) {
        of_rows[at(m * chosen + j)] = order[at(j)];
        weights[at(m * chosen + j)] = static_cast<float>(0.5 + 0.4 * noise(at(m), at(300 + j)));
      }
    }
  }

  void draw_bf16() {
    weight.assign(at(experts * outputs * stride()), bf16{0});
    for (int64_t n = 0; n < experts * outputs; ++n)
      for (int64_t k = 0; k < cols; ++k) weight[at(n * stride() + k)] = to_bf16(noise(at(1000 + n), at(k)));
  }
  void draw_codes() {
    MatvecShape all{1, cols, stride(), experts * outputs, layout.unit};
    all.weights = layout;
    MatvecData data(all);
    weight = std::move(data.weight), coded_values = std::move(data.coded_values), parts = std::move(data.parts);
  }

  int64_t stride() const { return round_up_to_8(cols); }
  ExpertShape shape() const { return {rows, experts, chosen, cols, stride(), outputs, layout}; }
  std::vector<Constant> constants(std::vector<Constant> more) const {
    return with_format(layout, constants_of(shape().constants(), std::move(more)));
  }

  void draw_x(int64_t count) {
    x = poisoned<bf16>(at(count * stride()));
    for (int64_t m = 0; m < count; ++m)
      for (int64_t k = 0; k < cols; ++k) x[at(m * stride() + k)] = to_bf16(noise(at(m), at(k)));
  }

  // Element k of row n of the pair's expert, and the magnitude of what is added up of it.
  double value(int64_t pair, int64_t n, int64_t k) const {
    const size_t i = place(pair, n, k);
    return coded_values.empty() ? value_of(weight[i]) : coded_values[i];
  }
  double magnitude(int64_t pair, int64_t n, int64_t k) const {
    return parts.empty() ? std::abs(value(pair, n, k)) : parts[place(pair, n, k)];
  }
  // Row `row` of x, as doubles, with that row; `size` gets the sum of the products' sizes.
  double dot(int64_t pair, int64_t row, int64_t n, double& size) const {
    double sum = 0;
    size = 0;
    for (int64_t k = 0; k < cols; ++k) {
      const double of_x = value_of(x[at(row * stride() + k)]);
      sum += of_x * value(pair, n, k);
      size += std::abs(of_x) * magnitude(pair, n, k);
    }
    return sum;
  }

 private:
  size_t place(int64_t pair, int64_t n, int64_t k) const {
    return at((of_rows[at(pair)] * outputs + n) * stride() + k);
  }
};

inline double silu(double v) { return v / (1 + std::exp(-v)); }

}  // namespace nodewright::test
