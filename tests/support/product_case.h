// One matrix product for tests: operands with noise in device memory, the value of every output in double, and how far
// a product that sums in fp32 may lie from it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/matmul_plan.h"
#include "runtime/memory/memory.h"

namespace nodewright::test {

inline double value_of(Element element, const std::byte* at) {
  if (element == Element::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if (element == Element::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// Values of magnitude 1/32 to 1 that the element holds exactly.
inline std::vector<std::byte> noise_of(Element element, uint64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count * bytes_of(element));
  for (uint64_t i = 0; i < count; ++i) {
    const auto word = static_cast<uint32_t>(random());
    const uint32_t sign = word >> 31, exponent = word >> 24 & 3, fraction = word & 0x7fffff;
    if (element == Element::f32) {
      const uint32_t bits = sign << 31 | (123 + exponent) << 23 | fraction;
      std::memcpy(bytes.data() + 4 * i, &bits, 4);
    } else {
      const auto bits =
          static_cast<uint16_t>(element == Element::bf16 ? sign << 15 | (123 + exponent) << 7 | fraction >> 16
                                                         : sign << 15 | (11 + exponent) << 10 | fraction >> 13);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

class ProductCase {
 public:
  // The plan gives the shape with its leading dimensions. `separate_c`: beta scales c and not y.
  ProductCase(const MatmulPlan& plan, bool separate_c = true, unsigned seed = 1)
      : shape_(plan.shape()),
        spans_(plan.spans()),
        device_(plan.device()),
        separate_c_(separate_c && spans_.c != 0),
        a(device_, "a", spans_.a),
        b(device_, "b", spans_.b),
        c(device_, "c", separate_c_ ? spans_.c : 0),
        bias(device_, "bias", spans_.bias),
        y(device_, "y", spans_.y),
        workspace(device_, "workspace", spans_.workspace),
        a_(noise_of(shape_.inputs, spans_.a / bytes_of(shape_.inputs), seed)),
        b_(noise_of(shape_.inputs, spans_.b / bytes_of(shape_.inputs), seed + 1)),
        c_(noise_of(shape_.output, spans_.c / bytes_of(shape_.output), seed + 2)),
        bias_(noise_of(shape_.output, spans_.bias / bytes_of(shape_.output), seed + 3)) {
    write_device(device_, a.address(), a_, "a");
    write_device(device_, b.address(), b_, "b");
    if (separate_c_) write_device(device_, c.address(), c_, "c");
    if (spans_.bias != 0) write_device(device_, bias.address(), bias_, "bias");
    reset();
  }

  // y as before the product: NaN, or what beta scales.
  void reset() {
    fill_device(device_, y.address(), std::byte{0xff}, y.bytes(), "y");
    if (spans_.c != 0 && !separate_c_) write_device(device_, y.address(), c_, "y");
    if (workspace.bytes() != 0) fill_device(device_, workspace.address(), std::byte{0xff}, workspace.bytes(), "w");
  }
  std::vector<std::byte> result() const {
    std::vector<std::byte> bytes(y.bytes());
    read_device(device_, bytes, y.address(), "y");
    return bytes;
  }
  MatmulOperands operands() const {
    return {.a = a.address(),
            .b = b.address(),
            .c = c.address(),
            .bias = bias.address(),
            .y = y.address(),
            .workspace = workspace.address()};
  }

  // Fails the test where `y` lies further from the double product than rounding explains.
  void expect_close(const std::vector<std::byte>& y_bytes, const std::string& what) const {
    const auto at = [](Element element, const std::vector<std::byte>& bytes, int64_t index) {
      return value_of(element, bytes.data() + static_cast<size_t>(index) * bytes_of(element));
    };
    // Half a unit in the last place of the output; k sums in fp32, whose rounding tensor cores replace by truncation.
    const double output_rounding = shape_.output == Element::f32    ? 0x1p-24
                                   : shape_.output == Element::bf16 ? 0x1p-8
                                                                    : 0x1p-11;
    const double sum_rounding = static_cast<double>(shape_.k + 4) * 0x1p-23;
    int reported = 0;
    for (int64_t i = 0; i < shape_.m; ++i)
      for (int64_t j = 0; j < shape_.n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < shape_.k; ++p) {
          const double term = at(shape_.inputs, a_, shape_.transpose_a ? p * shape_.lda + i : i * shape_.lda + p) *
                              at(shape_.inputs, b_, shape_.transpose_b ? j * shape_.ldb + p : p * shape_.ldb + j);
          sum += term;
          magnitude += std::abs(term);
        }
        double expected = shape_.alpha * sum;
        if (shape_.beta != 0.0f) expected += shape_.beta * at(shape_.output, c_, i * shape_.ldc + j);
        if (shape_.bias) expected += at(shape_.output, bias_, j);
        const double got = at(shape_.output, y_bytes, i * shape_.ldy + j);
        // An algorithm may round the product before it adds c and bias.
        const double rounded =
            std::abs(expected) + (shape_.beta != 0.0f || shape_.bias ? std::abs(shape_.alpha * sum) : 0);
        const double allowed = output_rounding * rounded + sum_rounding * (magnitude * std::abs(shape_.alpha) + 4);
        if (std::abs(got - expected) <= allowed || ++reported > 3) continue;
        ADD_FAILURE() << what << ": y[" << i << ", " << j << "] is " << got << ", expected " << expected << " +- "
                      << allowed;
      }
    // What lies between two rows is not the product's.
    for (int64_t i = 0; i + 1 < shape_.m; ++i)
      for (int64_t j = shape_.n; j < shape_.ldy; ++j)
        for (uint64_t byte = 0; byte < bytes_of(shape_.output); ++byte) {
          const size_t index = static_cast<size_t>(i * shape_.ldy + j) * bytes_of(shape_.output) + byte;
          const std::byte before = spans_.c != 0 && !separate_c_ ? c_[index] : std::byte{0xff};
          ASSERT_EQ(y_bytes[index], before) << what << ": written between rows " << i << " and " << i + 1;
        }
  }

 private:
  MatmulShape shape_;
  MatmulSpans spans_;
  Device& device_;
  bool separate_c_;

 public:
  DeviceBuffer a, b, c, bias, y, workspace;

 private:
  std::vector<std::byte> a_, b_, c_, bias_;
};

// Odd sizes, every transposition, gaps between rows, each element type, scales, c, bias; small enough for the CPU
// driver.
inline std::vector<MatmulShape> small_product_shapes() {
  constexpr Element bf16 = Element::bf16, fp16 = Element::fp16, f32 = Element::f32;
  return {
      {.m = 1, .n = 64, .k = 64, .transpose_b = true},
      {.m = 3, .n = 65, .k = 66, .transpose_b = true},
      {.m = 7, .n = 9, .k = 5},
      {.m = 5, .n = 33, .k = 17, .transpose_a = true},
      {.m = 8, .n = 24, .k = 40, .transpose_a = true, .transpose_b = true},
      {.m = 16, .n = 32, .k = 48, .lda = 56, .ldb = 40, .ldy = 64},
      {.m = 4, .n = 31, .k = 19, .output = f32},
      {.m = 6, .n = 10, .k = 30, .transpose_b = true, .inputs = fp16, .output = fp16},
      {.m = 6, .n = 11, .k = 30, .inputs = fp16, .output = f32},
      {.m = 9, .n = 13, .k = 21, .inputs = f32, .output = f32},
      {.m = 8, .n = 16, .k = 32, .transpose_b = true, .alpha = 0.5f, .beta = 2.0f},
      {.m = 5, .n = 7, .k = 11, .alpha = -1.5f, .beta = 0.25f, .bias = true},
      {.m = 2, .n = 40, .k = 24, .transpose_b = true, .bias = true},
      {.m = 4, .n = 8, .k = 16, .ldc = 12, .ldy = 16, .beta = 1.0f},
      {.m = 1, .n = 1, .k = 1, .inputs = bf16},
  };
}

}  // namespace nodewright::test
