// Values of tensors that no file holds, for benchmarks of any shape without a checkpoint (`--load-format dummy`).
#pragma once

#include <cstdint>
#include <span>

#include "kernels_src/args.h"
#include "models/weights/safetensors.h"

namespace nodewright {

// Uniform values that depend on the tensor's name and the row: those of a matrix with a standard deviation of 1 over
// the root of its columns, gains of norms about 1, biases about 0. Thread-safe.
class DrawnTensor {
 public:
  DrawnTensor(const TensorInfo& tensor, int64_t cols);
  void row(int64_t row, std::span<bf16> values) const;
  // The same of a matrix as FP8 codes, to be multiplied by fp8_scale().
  void fp8_row(int64_t row, std::span<uint8_t> codes) const;
  float fp8_scale() const;
  // And as int4 codes, a byte each, from which 8 is to be taken before they are multiplied by int4_scale().
  void int4_row(int64_t row, std::span<uint8_t> codes) const;
  float int4_scale() const;

 private:
  template <class F>
  void each(int64_t row, size_t count, F f) const;

  uint64_t seed_;
  float mean_ = 0, half_width_ = 0;
};

}  // namespace nodewright
