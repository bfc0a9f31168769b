// What is added to a matrix while it is loaded: s B A of a LoRA adapter that is merged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nodewright {

// A change of W [rows, cols], in the checkpoint's layout, in fp32.
struct WeightDelta {
  int64_t rank = 0, cols = 0;
  float scale = 1;
  std::vector<float> a;  // [rank, cols]
  std::vector<float> b;  // [rows, rank]

  float at(int64_t row, int64_t col) const {
    float sum = 0;
    for (int64_t j = 0; j < rank; ++j)
      sum += b[static_cast<size_t>(row * rank + j)] * a[static_cast<size_t>(j * cols + col)];
    return scale * sum;
  }
  // Adds one row of it; `sum`: as many floats, of no meaning afterwards.
  void add_to(int64_t row, std::span<float> w, std::span<float> sum) const {
    for (float& s : sum) s = 0;
    for (int64_t j = 0; j < rank; ++j) {
      const float factor = b[static_cast<size_t>(row * rank + j)];
      const float* const of_a = a.data() + j * cols;
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += factor * of_a[c];
    }
    for (size_t c = 0; c < sum.size(); ++c) w[c] += scale * sum[c];
  }
};

}  // namespace nodewright
