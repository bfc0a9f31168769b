#include "models/weights/quantize/quantized_tensor.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>

#include "models/weights/bf16_conversion.h"
#include "models/weights/rounding/fp8_rounding.h"
#include "models/weights/rounding/int4_rounding.h"

namespace nodewright {
namespace {

constexpr int64_t kBlock = 128;  // rows and columns of a scale of fp8_block; also the rows of a thread's turn

// Where the rows of a matrix go: one after the other, and the scales of its blocks or groups.
struct Destination {
  std::byte *codes, *scales;
};

// Rows [first, first + rows) of `tensor`, which are `values`.
class Rows {
 public:
  Rows(const TensorInfo& tensor, int64_t first, std::vector<float> values)
      : tensor_(tensor), first_(first), cols_(tensor.shape[1]), values_(std::move(values)) {}

  int64_t count() const { return static_cast<int64_t>(values_.size()) / cols_; }
  std::span<const float> part(int64_t row, int64_t begin, int64_t end) const {
    return std::span(values_).subspan(static_cast<size_t>(row * cols_ + begin), static_cast<size_t>(end - begin));
  }
  float largest(int64_t row, int64_t begin, int64_t end) const {
    return largest_magnitude(part(row, begin, end), tensor_, first_ + row);
  }

  void to_fp8_rows(const Destination& to) const {
    for (int64_t row = 0; row < count(); ++row) {
      const float scale = fp8_scale(largest(row, 0, cols_));
      round_to_fp8(part(row, 0, cols_), scale, code_at(to, row, 0));
      put(to.scales, first_ + row, scale);
    }
  }
  void to_fp8_block(const Destination& to) const {
    const int64_t blocks = (cols_ + kBlock - 1) / kBlock;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * kBlock, end = std::min(begin + kBlock, cols_);
      float most = 0;
      for (int64_t row = 0; row < count(); ++row) most = std::max(most, largest(row, begin, end));
      const float scale = fp8_scale(most);
      for (int64_t row = 0; row < count(); ++row) round_to_fp8(part(row, begin, end), scale, code_at(to, row, begin));
      put(to.scales, first_ / kBlock * blocks + block, scale);
    }
  }
  void to_int4(const Destination& to) const {
    const int64_t group = *int4_group(cols_), groups = cols_ / group;
    std::vector<uint32_t> words(static_cast<size_t>(group / 8));
    for (int64_t row = 0; row < count(); ++row)
      for (int64_t i = 0; i < groups; ++i) {
        const int64_t begin = i * group, end = begin + group;
        const float scale = int4_scale(part(row, begin, end), largest(row, begin, end));
        pack_int4(part(row, begin, end), scale, words.data());
        std::memcpy(to.codes + ((first_ + row) * cols_ + begin) / 2, words.data(), static_cast<size_t>(group / 2));
        put(to.scales, (first_ + row) * groups + i, static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16));
      }
  }

 private:
  uint8_t* code_at(const Destination& to, int64_t row, int64_t col) const {
    return reinterpret_cast<uint8_t*>(to.codes) + (first_ + row) * cols_ + col;
  }
  template <class T>
  static void put(std::byte* to, int64_t index, T value) {
    std::memcpy(to + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }

  const TensorInfo& tensor_;
  int64_t first_, cols_;
  std::vector<float> values_;
};

Rows read_rows_of(const TensorInfo& tensor, int64_t first, int64_t rows) {
  const auto count = static_cast<size_t>(rows * tensor.shape[1]);
  const uint64_t element_bytes = dtype_bits(tensor.dtype) / 8;
  std::vector<std::byte> stored(count * element_bytes);
  tensor.file->read(tensor.offset + static_cast<uint64_t>(first * tensor.shape[1]) * element_bytes, stored);
  std::vector<float> values(count);
  convert_to_floats(tensor.dtype, stored.data(), values.data(), static_cast<int64_t>(count));
  return {tensor, first, std::move(values)};
}

// Calls work(0) to work(count - 1) on `threads` threads, this one among them, and throws the first error of any.
template <class Work>
void share_work(int64_t count, unsigned threads, const Work& work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) others.emplace_back(run);
    } catch (const std::system_error&) {  // fewer threads do as well
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::optional<int64_t> int4_group(int64_t cols) {
  for (const int64_t group : {128, 64, 32})
    if (cols % group == 0) return group;
  return {};
}

std::vector<WrittenTensor> quantized_tensors(QuantizedFormat format, const TensorInfo& tensor) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  const std::string& name = tensor.name;
  if (format == QuantizedFormat::int4)
    return {{name + "_packed", Dtype::kI32, {rows, cols / 8}},
            {name + "_scale", Dtype::kBF16, {rows, cols / *int4_group(cols)}},
            {name + "_shape", Dtype::kI64, {2}}};
  if (format == QuantizedFormat::fp8_row)
    return {{name, Dtype::kF8E4M3, {rows, cols}}, {name + "_scale", Dtype::kF32, {rows, 1}}};
  return {{name, Dtype::kF8E4M3, {rows, cols}},
          {name + "_scale_inv", Dtype::kF32, {(rows + kBlock - 1) / kBlock, (cols + kBlock - 1) / kBlock}}};
}

std::vector<std::byte> quantize_tensor(QuantizedFormat format, const TensorInfo& tensor, unsigned threads) {
  const std::vector<WrittenTensor> made = quantized_tensors(format, tensor);
  uint64_t bytes = 0;
  for (const WrittenTensor& one : made) bytes += one.bytes();
  std::vector<std::byte> data(bytes);
  const Destination to{data.data(), data.data() + made[0].bytes()};
  const int64_t rows = tensor.shape[0];
  share_work((rows + kBlock - 1) / kBlock, threads, [&](int64_t turn) {
    const int64_t first = turn * kBlock;
    const Rows some = read_rows_of(tensor, first, std::min(kBlock, rows - first));
    if (format == QuantizedFormat::int4)
      some.to_int4(to);
    else if (format == QuantizedFormat::fp8_row)
      some.to_fp8_rows(to);
    else
      some.to_fp8_block(to);
  });
  if (format == QuantizedFormat::int4) std::memcpy(to.scales + made[1].bytes(), tensor.shape.data(), made[2].bytes());
  return data;
}

}  // namespace nodewright
