#include "models/weights/weight_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/json_file.h"
#include "models/weights/bf16_conversion.h"
#include "models/weights/drawn_weights.h"
#include "models/weights/formats/encoded_matrix.h"
#include "models/weights/formats/int4_words.h"
#include "models/weights/rounding/fp8_rounding.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/memory/staging_buffer.h"

namespace nodewright {
namespace {

constexpr uint64_t kTaskBytes = uint64_t{1} << 20;  // of one read by one thread (UploadForm)

// ---- What a chunk holds ----------------------------------------------------------------------------------------

// Rows [begin, end) of a source.
struct Slice {
  const WeightSource* source;
  int64_t begin, end;
};

// Whole rows that are neighbours in the buffer.
struct Window {
  uint64_t begin, end;  // bytes of the buffer
  std::vector<Slice> slices;
};

std::vector<Window> cut(std::span<const WeightSource> sources, uint64_t chunk_bytes) {
  std::vector<Window> windows;
  for (const WeightSource& source : sources) {
    for (int64_t row = 0; row < source.rows;) {
      const uint64_t at = source.offset_of(row);
      if (windows.empty() || at + source.row_bytes() > windows.back().begin + chunk_bytes)
        windows.push_back({at, at, {}});
      const uint64_t room = (windows.back().begin + chunk_bytes - at) / source.row_bytes();
      const int64_t end = row + std::min(source.rows - row, static_cast<int64_t>(room));
      windows.back().slices.push_back({&source, row, end});
      windows.back().end = source.offset_of(end);
      row = end;
    }
  }
  return windows;
}

// Rows [begin, end) of one part, read by one thread.
struct ReadTask {
  const WeightSource* source;
  const WeightPart* part;
  int64_t begin, end;
  size_t window;
};

bool is_rounded(const WeightSource& source, const WeightPart& part) {
  return source.element != SourceElement::bf16 && part.tensor->encoded == nullptr;
}

// About as much as is read for a row: a scale is found in the whole row.
uint64_t read_bytes(const WeightSource& source, const WeightPart& part) {
  const bool finds_scale = source.element == SourceElement::scales && is_rounded(source, part);
  return finds_scale ? static_cast<uint64_t>(part.tensor_cols()) : source.row_bytes();
}

void append_tasks(const Window& window, size_t index, std::vector<ReadTask>& tasks) {
  for (const Slice& slice : window.slices)
    for (const WeightPart& part : slice.source->parts) {
      // The tensor's row for a row of the slice or for the next one below it.
      const auto tensor_row = [&](int64_t row) {
        return std::clamp((row - part.first + part.step - 1) / part.step, int64_t{0}, part.rows);
      };
      const int64_t end = tensor_row(slice.end);
      const int64_t least = part.tensor->encoded ? part.tensor->encoded->rows_at_once() : 1;
      const int64_t rows = std::max(static_cast<int64_t>(kTaskBytes / read_bytes(*slice.source, part)), least);
      for (int64_t row = tensor_row(slice.begin); row < end; row += rows)
        tasks.push_back({slice.source, &part, row, std::min(row + rows, end), index});
    }
}

void zero_gaps(const Window& window, std::byte* chunk) {
  for (const Slice& slice : window.slices)
    if (slice.source->parts.empty())
      std::memset(chunk + (slice.source->offset_of(slice.begin) - window.begin), 0,
                  static_cast<uint64_t>(slice.end - slice.begin) * slice.source->row_bytes());
  for (size_t i = 1; i < window.slices.size(); ++i) {
    const uint64_t gap = window.slices[i - 1].source->offset_of(window.slices[i - 1].end);
    std::memset(chunk + (gap - window.begin), 0, window.slices[i].source->offset_of(window.slices[i].begin) - gap);
  }
}

// Adds what a row of the tensor gets.
void add_deltas(const WeightPart& part, int64_t tensor_row, std::span<float> row) {
  std::vector<float> sum(row.size());
  for (const WeightDelta& delta : *part.deltas) delta.add_to(tensor_row, row, sum);
}

// Rounds a row of the tensor, as floats, with what is added to it.
void round_with_deltas(const WeightPart& part, int64_t tensor_row, std::span<float> row, WeightElement* to) {
  add_deltas(part, tensor_row, row);
  convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(row.data()), to, static_cast<int64_t>(row.size()));
}

// Reads columns [begin, end) of a transposed tensor row by row, and puts each where it is a row. Each row of the file
// is one read of a few KB: reading all of it for every task would move a wide matrix many times.
void read_columns(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin, std::vector<std::byte>& scratch) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const uint64_t element_bytes = dtype_bits(tensor.dtype) / 8;
  const int64_t count = task.end - task.begin;
  scratch.resize(static_cast<uint64_t>(count) * element_bytes);
  std::vector<WeightElement> converted(static_cast<size_t>(count));
  for (int64_t col = 0; col < source.stride; ++col) {
    if (col < source.cols) {
      const int64_t first = (part.from_col + col) * tensor.shape[1] + part.from + task.begin;
      tensor.file->read(tensor.offset + static_cast<uint64_t>(first) * element_bytes, scratch);
      if (part.deltas == nullptr) {
        convert_to_bf16(tensor.dtype, scratch.data(), converted.data(), count);
      } else {
        std::vector<float> values(static_cast<size_t>(count));
        convert_to_floats(tensor.dtype, scratch.data(), values.data(), count);
        for (const WeightDelta& delta : *part.deltas)
          for (int64_t i = 0; i < count; ++i)
            values[static_cast<size_t>(i)] += delta.at(part.from + task.begin + i, part.from_col + col);
        convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(values.data()), converted.data(), count);
      }
    } else {
      std::fill(converted.begin(), converted.end(), WeightElement{0});
    }
    for (int64_t i = 0; i < count; ++i) {
      std::byte* row = chunk + (source.offset_of(part.first + (task.begin + i) * part.step) - chunk_begin);
      reinterpret_cast<WeightElement*>(row)[col] = converted[static_cast<size_t>(i)];
    }
  }
}

// Draws the rows where no file holds them.
void draw_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const int64_t cols = part.tensor_cols();
  const DrawnTensor drawn(*part.tensor, cols);
  std::vector<WeightElement> whole(static_cast<size_t>(cols));
  for (int64_t row = task.begin; row < task.end; ++row) {
    std::byte* const place = chunk + (source.offset_of(part.first + row * part.step) - chunk_begin);
    const std::span to(reinterpret_cast<WeightElement*>(place), static_cast<size_t>(source.stride));
    const int64_t tensor_row = part.from + row * part.from_step;
    drawn.row(tensor_row, whole);
    if (part.deltas != nullptr) {
      std::vector<float> values(whole.size());
      convert_to_floats(Dtype::kBF16, reinterpret_cast<const std::byte*>(whole.data()), values.data(), cols);
      round_with_deltas(part, tensor_row, values, whole.data());
    }
    std::ranges::copy(std::span(whole).subspan(static_cast<size_t>(part.from_col), static_cast<size_t>(source.cols)),
                      to.begin());
    std::ranges::fill(to.subspan(static_cast<size_t>(source.cols)), WeightElement{0});
  }
}

// Calls f(row, rows, row of the tensor) for slices of the task, each of neighbours in an encoded tensor: as many rows
// as keep `columns` numbers a row in a cache.
template <class F>
void each_slice(const ReadTask& task, int64_t columns, const F& f) {
  constexpr int64_t kNumbers = 1 << 18;
  const WeightPart& part = *task.part;
  const int64_t most =
      part.from_step == 1 ? std::max(kNumbers / columns, part.tensor->encoded->rows_at_once()) : int64_t{1};
  for (int64_t first = task.begin; first < task.end; first += most)
    f(first, std::min(most, task.end - first), part.from + first * part.from_step);
}

// Decodes rows that are stored in another format.
void decode_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const int64_t cols = part.tensor_cols();
  std::vector<float> values;
  std::vector<WeightElement> whole(static_cast<size_t>(cols));
  each_slice(task, cols, [&](int64_t first, int64_t rows, int64_t tensor_row) {
    values.resize(static_cast<size_t>(rows * cols));
    part.tensor->encoded->decode(tensor_row, rows, values);
    for (int64_t row = 0; row < rows; ++row) {
      const std::span of_row = std::span(values).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
      auto* to = reinterpret_cast<WeightElement*>(
          chunk + (source.offset_of(part.first + (first + row) * part.step) - chunk_begin));
      if (part.deltas == nullptr) {
        convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(of_row.data() + part.from_col), to,
                        source.cols);
      } else {
        round_with_deltas(part, tensor_row + row, of_row, whole.data());
        std::copy_n(whole.begin() + part.from_col, source.cols, to);
      }
      std::fill(to + source.cols, to + source.stride, WeightElement{0});
    }
  });
}

// Codes as they are. A code of a NaN is refused: kernels do not keep it one.
void read_fp8_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin, std::vector<std::byte>& scratch) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const int64_t cols = part.tensor_cols(), rows = task.end - task.begin;
  const auto at_once = part.from_step == 1 ? rows : 1;
  scratch.resize(static_cast<uint64_t>(at_once * cols));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t tensor_row = part.from + (task.begin + row) * part.from_step;
    auto* const to = reinterpret_cast<uint8_t*>(
        chunk + (source.offset_of(part.first + (task.begin + row) * part.step) - chunk_begin));
    if (tensor.file == nullptr) {
      std::vector<uint8_t> whole(static_cast<size_t>(cols));
      DrawnTensor(tensor, cols).fp8_row(tensor_row, whole);
      std::copy_n(whole.begin() + part.from_col, source.cols, to);
      continue;
    }
    if (row % at_once == 0)
      tensor.file->read(tensor.offset + static_cast<uint64_t>(tensor_row * cols),
                        std::span(scratch).first(static_cast<uint64_t>(at_once * cols)));
    std::memcpy(to, scratch.data() + (row % at_once * cols + part.from_col), static_cast<size_t>(source.cols));
    bool has_nan = false;
    for (int64_t i = 0; i < source.cols; ++i) has_nan |= (to[i] & 0x7f) == 0x7f;
    if (has_nan)
      throw Error({.doing = fmt::format("load tensor {} of", in_quotes(tensor.name)),
                   .object = tensor.file->path().string(),
                   .detail = fmt::format("row {} has a NaN", tensor_row)});
  }
}

// Whole rows of numbers, from their file or drawn: [rows, cols].
void read_numbers(const TensorInfo& tensor, int64_t first, int64_t rows, int64_t cols, std::span<float> values,
                  std::vector<std::byte>& scratch) {
  const uint64_t element_bytes = dtype_bits(tensor.dtype) / 8, count = static_cast<uint64_t>(rows * cols);
  scratch.resize(count * element_bytes);
  if (tensor.file != nullptr) {
    tensor.file->read(tensor.offset + static_cast<uint64_t>(first * cols) * element_bytes, scratch);
  } else {
    const DrawnTensor drawn(tensor, cols);
    const std::span elements(reinterpret_cast<WeightElement*>(scratch.data()), count);
    for (int64_t row = 0; row < rows; ++row)
      drawn.row(first + row, elements.subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
  }
  convert_to_floats(tensor.dtype, scratch.data(), values.data(), rows * cols);
}

// The codes of rows that loading rounds, or their scales.
void round_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin, std::vector<std::byte>& scratch) {
  constexpr int64_t kFloats = 1 << 16;  // 256 KiB, at once
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const int64_t cols = part.tensor_cols();
  const int64_t most =
      part.from_step == 1 ? std::clamp(kFloats / cols, int64_t{1}, std::max(task.end - task.begin, int64_t{1})) : 1;
  std::vector<float> values(static_cast<size_t>(most * cols));
  for (int64_t first = task.begin; first < task.end; first += most) {
    const int64_t rows = std::min(most, task.end - first), tensor_row = part.from + first * part.from_step;
    read_numbers(*part.tensor, tensor_row, rows, cols, values, scratch);
    for (int64_t row = 0; row < rows; ++row) {
      const auto of_row = std::span(values).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
      if (part.deltas != nullptr) add_deltas(part, tensor_row + row, of_row);
      const float scale = fp8_scale(of_row, *part.tensor, tensor_row + row);
      std::byte* const to = chunk + (source.offset_of(part.first + (first + row) * part.step) - chunk_begin);
      if (source.element == SourceElement::scales)
        std::memcpy(to, &scale, sizeof scale);
      else
        round_to_fp8(of_row.subspan(static_cast<size_t>(part.from_col), static_cast<size_t>(source.cols)), scale,
                     reinterpret_cast<uint8_t*>(to));
    }
  }
}

void read_fp8_scales(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const ScaleBlock block = *tensor.encoded->fp8_block();
  const int64_t of_row = (part.tensor_cols() + block.cols - 1) / block.cols, from_col = part.from_col / block.cols;
  const auto grid_row = [&](int64_t row) { return (part.from + row * part.from_step) / block.rows; };
  const int64_t first = grid_row(task.begin), end = grid_row(task.end - 1) + 1;
  const std::vector<float> scales = tensor.file == nullptr
                                        ? std::vector(static_cast<size_t>((end - first) * of_row),
                                                      DrawnTensor(tensor, part.tensor_cols()).fp8_scale())
                                        : tensor.encoded->fp8_scales(first, end);
  for (int64_t row = task.begin; row < task.end; ++row) {
    auto* const to = reinterpret_cast<float*>(chunk + (source.offset_of(part.first + row * part.step) - chunk_begin));
    std::copy_n(scales.begin() + (grid_row(row) - first) * of_row + from_col, source.cols, to);
    std::fill(to + source.cols, to + source.stride, 0.0f);
  }
}

void read_group_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const int64_t cols = part.tensor_cols();
  std::vector<uint8_t> codes;
  each_slice(task, cols, [&](int64_t first, int64_t rows, int64_t tensor_row) {
    codes.resize(static_cast<size_t>(rows * cols));
    if (tensor.file != nullptr) tensor.encoded->group_codes(tensor_row, rows, codes);
    for (int64_t row = 0; row < rows; ++row) {
      const auto whole = std::span(codes).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
      if (tensor.file == nullptr) DrawnTensor(tensor, cols).int4_row(tensor_row + row, whole);
      const auto of_row = whole.subspan(static_cast<size_t>(part.from_col), static_cast<size_t>(source.cols));
      std::byte* const to = chunk + (source.offset_of(part.first + (first + row) * part.step) - chunk_begin);
      if (source.layout.has_nibbles())
        pack_int4_row(of_row, to);
      else
        std::memcpy(to, of_row.data(), of_row.size());
    }
  });
}

std::vector<uint32_t> group_words_of(const TensorInfo& tensor, const WeightLayout& layout, int64_t first,
                                     int64_t rows) {
  std::vector<uint32_t> words = tensor.encoded->group_words(first, rows);
  const WeightLayout own = *tensor.encoded->group_layout();
  return own == layout ? words : offset_words(words, own, layout.group);
}
void read_group_words(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const int64_t of_row = source.layout.group_words(part.tensor_cols()), from = source.layout.group_words(part.from_col);
  std::vector<uint32_t> words;
  each_slice(task, of_row, [&](int64_t first, int64_t rows, int64_t tensor_row) {
    if (tensor.file != nullptr)
      words = group_words_of(tensor, source.layout, tensor_row, rows);
    else
      words.assign(static_cast<size_t>(rows * of_row),
                   int4_scale_word(DrawnTensor(tensor, part.tensor_cols()).int4_scale(), 8));
    for (int64_t row = 0; row < rows; ++row) {
      auto* const to =
          reinterpret_cast<uint32_t*>(chunk + (source.offset_of(part.first + (first + row) * part.step) - chunk_begin));
      std::copy_n(words.begin() + row * of_row + from, source.cols, to);
      std::fill(to + source.cols, to + source.stride, uint32_t{0});
    }
  });
}

// Some columns of each row, read by themselves.
void read_parts_of_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin, std::vector<std::byte>& scratch) {
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const uint64_t element_bytes = dtype_bits(tensor.dtype) / 8;
  const int64_t cols = part.tensor_cols();
  // What is added goes over whole rows.
  const int64_t first = part.deltas == nullptr ? part.from_col : 0;
  const int64_t count = part.deltas == nullptr ? source.cols : cols;
  scratch.resize(static_cast<uint64_t>(count) * element_bytes);
  std::vector<float> values(part.deltas == nullptr ? 0 : static_cast<size_t>(cols));
  std::vector<WeightElement> whole(values.size());
  for (int64_t row = task.begin; row < task.end; ++row) {
    const int64_t tensor_row = part.from + row * part.from_step;
    tensor.file->read(tensor.offset + static_cast<uint64_t>(tensor_row * cols + first) * element_bytes, scratch);
    auto* to = reinterpret_cast<WeightElement*>(chunk + (source.offset_of(part.first + row * part.step) - chunk_begin));
    if (part.deltas == nullptr) {
      convert_to_bf16(tensor.dtype, scratch.data(), to, source.cols);
    } else {
      convert_to_floats(tensor.dtype, scratch.data(), values.data(), cols);
      round_with_deltas(part, tensor_row, values, whole.data());
      std::copy_n(whole.begin() + part.from_col, source.cols, to);
    }
    std::fill(to + source.cols, to + source.stride, WeightElement{0});
  }
}

// Reads the rows, converts them and puts them in their places. `chunk` stands for the buffer from `chunk_begin` on.
void read_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin, std::vector<std::byte>& scratch) {
  if (is_rounded(*task.source, *task.part)) return round_rows(task, chunk, chunk_begin, scratch);
  const bool has_groups = task.source->layout.is_grouped();
  if (task.source->element == SourceElement::codes)
    return has_groups ? read_group_rows(task, chunk, chunk_begin) : read_fp8_rows(task, chunk, chunk_begin, scratch);
  if (task.source->element == SourceElement::scales)
    return has_groups ? read_group_words(task, chunk, chunk_begin) : read_fp8_scales(task, chunk, chunk_begin);
  if (task.part->tensor->file == nullptr) return draw_rows(task, chunk, chunk_begin);
  if (task.part->tensor->encoded != nullptr) return decode_rows(task, chunk, chunk_begin);
  if (task.part->transposed) return read_columns(task, chunk, chunk_begin, scratch);
  if (task.part->tensor_cols() != task.source->cols) return read_parts_of_rows(task, chunk, chunk_begin, scratch);
  const WeightSource& source = *task.source;
  const WeightPart& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const uint64_t tensor_row_bytes = static_cast<uint64_t>(source.cols) * dtype_bits(tensor.dtype) / 8;
  const uint64_t bytes = static_cast<uint64_t>(task.end - task.begin) * tensor_row_bytes;
  const auto offset_of = [&](int64_t row) {
    return tensor.offset + static_cast<uint64_t>(part.from + row * part.from_step) * tensor_row_bytes;
  };
  const auto place = [&](int64_t row) {
    return chunk + (source.offset_of(part.first + row * part.step) - chunk_begin);
  };

  const bool as_stored = part.deltas == nullptr && tensor.dtype == Dtype::kBF16 && part.step == 1 &&
                         part.from_step == 1 && source.stride == source.cols;
  if (as_stored) return tensor.file->read(offset_of(task.begin), {place(task.begin), bytes});

  scratch.resize(bytes);
  if (part.from_step == 1)
    tensor.file->read(offset_of(task.begin), scratch);
  else
    for (int64_t row = task.begin; row < task.end; ++row)
      tensor.file->read(
          offset_of(row),
          std::span(scratch).subspan(static_cast<uint64_t>(row - task.begin) * tensor_row_bytes, tensor_row_bytes));
  for (int64_t row = task.begin; row < task.end; ++row) {
    auto* to = reinterpret_cast<WeightElement*>(place(row));
    const std::byte* const stored = scratch.data() + static_cast<uint64_t>(row - task.begin) * tensor_row_bytes;
    if (part.deltas == nullptr) {
      convert_to_bf16(tensor.dtype, stored, to, source.cols);
    } else {
      std::vector<float> values(static_cast<size_t>(source.cols));
      convert_to_floats(tensor.dtype, stored, values.data(), source.cols);
      round_with_deltas(part, part.from + row * part.from_step, values, to);
    }
    std::fill(to + source.cols, to + source.stride, WeightElement{0});
  }
}

// ---- The threads that read -------------------------------------------------------------------------------------

// Threads that take the tasks in order, each as soon as its window has a chunk. They make no driver calls.
class Readers {
 public:
  Readers(const std::vector<Window>& windows, unsigned most) : windows_(windows), places_(windows.size(), nullptr) {
    for (size_t i = 0; i < windows.size(); ++i) {
      const size_t before = tasks_.size();
      append_tasks(windows[i], i, tasks_);
      left_.push_back(tasks_.size() - before);
    }
    const size_t count = std::min<size_t>(std::max(most, 1u), tasks_.size());
    for (size_t i = 0; i < count; ++i) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error& error) {  // fewer threads read as well
        if (!threads_.empty()) break;
        throw Error({.doing = "start a thread that reads weights", .detail = error.what()});
      }
    }
  }

  ~Readers() { stop(); }  // before the threads are joined
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // `window` may be filled from now on, in `chunk`. Windows are opened in their order.
  void open(size_t window, std::byte* chunk) {
    zero_gaps(windows_[window], chunk);
    {
      const std::lock_guard lock(mutex_);
      places_[window] = chunk;
      open_ = window + 1;
    }
    opened_.notify_all();
  }

  // Returns when all of `window` stands in its chunk; throws the first error of any thread.
  void wait_for(size_t window) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return left_[window] == 0 || failure_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work() {
    std::vector<std::byte> scratch;
    for (size_t i = next_++; i < tasks_.size(); i = next_++) {
      const ReadTask& task = tasks_[i];
      std::byte* chunk = place_of(task.window);
      if (!chunk) return;
      try {
        read_rows(task, chunk, windows_[task.window].begin, scratch);
      } catch (...) {
        fail(std::current_exception());
        return;
      }
      done(task.window);
    }
  }

  // Null once there is no use in going on.
  std::byte* place_of(size_t window) {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_ > window || stopped_; });
    return stopped_ ? nullptr : places_[window];
  }

  void done(size_t window) {
    const std::lock_guard lock(mutex_);
    if (--left_[window] == 0) filled_.notify_one();
  }

  void fail(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(failure);
    }
    filled_.notify_one();
    stop();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    opened_.notify_all();
  }

  const std::vector<Window>& windows_;
  std::vector<ReadTask> tasks_;  // in the order of their windows
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable opened_, filled_;
  std::vector<std::byte*> places_;  // [window] the chunk it is filled in
  std::vector<size_t> left_;        // [window] tasks that are not done
  size_t open_ = 0;                 // windows that have a chunk
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // last: joined before what they use goes away
};

// ---- Upload ----------------------------------------------------------------------------------------------------

struct Chunk {
  StagingBuffer memory;
  Event copied;  // the last copy out of it has run
};

// Waits for the copies that still read the chunks, whatever ended the upload.
class CopiesDone {
 public:
  explicit CopiesDone(Stream& stream) : stream_(stream) {}
  ~CopiesDone() {
    if (!waited_) try {
        stream_.synchronize();
      } catch (...) {  // the first error says what happened
      }
  }
  void wait() {
    waited_ = true;
    stream_.synchronize();
  }

 private:
  Stream& stream_;
  bool waited_ = false;
};

}  // namespace

unsigned usual_readers() {
  const unsigned processors = std::max(std::thread::hardware_concurrency(), 1u);
  return processors - processors / 4;
}

void upload_weights(Device& device, Stream& stream, std::span<const WeightSource> sources, const NamedRange& to,
                    const Progress& progress, const UploadForm& form, const std::stop_token& stop) {
  uint64_t chunk_bytes = std::min(form.chunk_bytes, to.bytes);
  for (const WeightSource& source : sources) chunk_bytes = std::max(chunk_bytes, source.row_bytes());
  const std::vector<Window> windows = cut(sources, chunk_bytes);
  const size_t count = std::min(std::max(form.chunks, size_t{2}), windows.size());
  std::vector<Chunk> chunks;
  chunks.reserve(count);
  CopiesDone copies(stream);  // runs after the readers have ended and before the chunks are freed
  Readers readers(windows, form.readers);
  for (size_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("weights.staging{}", i);
    chunks.push_back({StagingBuffer(device, name, chunk_bytes), Event(device, name + ".copied")});
    readers.open(i, chunks[i].memory.data());
  }
  for (size_t i = 0; i < windows.size() && !stop.stop_requested(); ++i) {
    const Window& window = windows[i];
    Chunk& chunk = chunks[i % count];
    readers.wait_for(i);
    chunk.memory.pin();  // now that the readers have touched its pages, and while the chunk before travels
    write_device_async(stream, to.address + window.begin, chunk.memory.data(), window.end - window.begin, to.name);
    chunk.copied.record(stream);
    if (i == 0 || i + 1 == windows.size()) continue;
    // The copy before this one ends first, so that the link has work while its chunk is handed on.
    const size_t before = i - 1;
    chunks[before % count].copied.synchronize();
    if (before + count < windows.size()) readers.open(before + count, chunks[before % count].memory.data());
    if (progress.report) progress.report(windows[before].end, to.bytes);
  }
  copies.wait();
  if (progress.report && !stop.stop_requested()) progress.report(to.bytes, to.bytes);
}

}  // namespace nodewright
