#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "models/json_file.h"
#include "runtime/arena.h"
#include "runtime/error.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

constexpr uint64_t kElementBytes = sizeof(bf16);
constexpr int64_t kStrideElements = 8;  // 16 bytes of bf16, the widest load of a thread
// Reasoned, not measured yet. At 50 GB/s (PCIe 5 x16) a chunk travels in 0.7 ms, a hundred times what submitting it
// costs, and two of them pin little memory. One thread copies some 5 GB/s out of the page cache, so that eight keep up.
constexpr uint64_t kStagingBytes = uint64_t{32} << 20;  // of each of the two pinned chunks
constexpr uint64_t kTaskBytes = uint64_t{2} << 20;      // of one read by one thread: 16 tasks a chunk, two for each
constexpr unsigned kMostReaders = 8;

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// ---- What goes where -------------------------------------------------------------------------------------------

// Row i of a tensor becomes row first + i * step of a range.
struct Part {
  const TensorInfo* tensor;
  int64_t tensor_rows, first, step;
};

// One named range of the device buffer and the tensors it is made of.
struct Source {
  std::string name;
  uint64_t offset;             // bytes from the start of the buffer
  int64_t rows, cols, stride;  // bf16 elements
  std::vector<Part> parts;     // together they give every row once

  uint64_t row_bytes() const { return static_cast<uint64_t>(stride) * kElementBytes; }
  uint64_t bytes() const { return static_cast<uint64_t>(rows) * row_bytes(); }
  uint64_t offset_of(int64_t row) const { return offset + static_cast<uint64_t>(row) * row_bytes(); }
};

// The whole buffer, range after range: embedding, six per layer in the order of LayerWeights, final norm, head.
class Image {
 public:
  Image(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint), tied_(config.tied) {
    const ModelConfig& c = config;
    matrix("embedding", c.hidden, {{"model.embed_tokens.weight", c.vocab}});
    for (int64_t l = 0; l < c.layers; ++l) {
      const auto ours = [l](std::string_view what) { return fmt::format("l{}.{}", l, what); };
      const auto theirs = [l](std::string_view what) { return fmt::format("model.layers.{}.{}.weight", l, what); };
      vector(ours("attention_norm"), c.hidden, theirs("input_layernorm"));
      matrix(ours("qkv"), c.hidden,
             {{theirs("self_attn.q_proj"), c.query_width()},
              {theirs("self_attn.k_proj"), c.kv_width()},
              {theirs("self_attn.v_proj"), c.kv_width()}});
      matrix(ours("out"), c.query_width(), {{theirs("self_attn.o_proj"), c.hidden}});
      vector(ours("feed_forward_norm"), c.hidden, theirs("post_attention_layernorm"));
      interleaved(ours("gate_up"), c.hidden, c.intermediate, theirs("mlp.gate_proj"), theirs("mlp.up_proj"));
      matrix(ours("down"), c.intermediate, {{theirs("mlp.down_proj"), c.hidden}});
    }
    vector("final_norm", c.hidden, "model.norm.weight");
    if (!c.tied) matrix("head", c.hidden, {{"lm_head.weight", c.vocab}});
    refuse_unused();
  }

  const std::vector<Source>& sources() const { return sources_; }
  const std::set<const TensorInfo*>& tensors() const { return used_; }  // by name, as the checkpoint holds them
  uint64_t bytes() const { return bytes_; }

  uint64_t bytes_per_token() const {
    const Source& embedding = sources_.front();
    uint64_t bytes = embedding.row_bytes();
    for (const Source& source : sources_)
      if (tied_ || &source != &embedding) bytes += source.bytes();
    return bytes;
  }

 private:
  struct NamedRows {
    std::string tensor;
    int64_t rows;
  };

  void vector(std::string name, int64_t width, const std::string& tensor) {
    const TensorInfo& info = checkpoint_.require(tensor, {width});
    used_.insert(&info);
    add({std::move(name), 0, 1, width, width, {{&info, 1, 0, 1}}});
  }

  // The rows of the tensors one below the other.
  void matrix(std::string name, int64_t cols, const std::vector<NamedRows>& tensors) {
    Source source{std::move(name), 0, 0, cols, padded(cols), {}};
    for (const NamedRows& t : tensors) {
      source.parts.push_back({&require(t.tensor, t.rows, cols), t.rows, source.rows, 1});
      source.rows += t.rows;
    }
    add(std::move(source));
  }

  void interleaved(std::string name, int64_t cols, int64_t rows, const std::string& even, const std::string& odd) {
    add({std::move(name),
         0,
         2 * rows,
         cols,
         padded(cols),
         {{&require(even, rows, cols), rows, 0, 2}, {&require(odd, rows, cols), rows, 1, 2}}});
  }

  static int64_t padded(int64_t cols) { return (cols + kStrideElements - 1) / kStrideElements * kStrideElements; }

  const TensorInfo& require(const std::string& tensor, int64_t rows, int64_t cols) {
    const TensorInfo& info = checkpoint_.require(tensor, {rows, cols});
    used_.insert(&info);
    return info;
  }

  void add(Source source) {
    source.offset = bytes_;
    bytes_ += round_up(source.bytes(), kArenaAlignBytes);
    sources_.push_back(std::move(source));
  }

  // A tensor that nothing reads (a bias, one layer more) means that config.json describes another network.
  void refuse_unused() const {
    const TensorInfo* first = nullptr;
    size_t count = 0;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      const bool derived = tensor.name.ends_with(".rotary_emb.inv_freq");  // old files store it; config.json gives it
      if (used_.contains(&tensor) || derived || (tied_ && tensor.name == "lm_head.weight")) continue;
      if (count++ == 0) first = &tensor;
    }
    if (first)
      throw Error({.doing = "load the weights of",
                   .object = checkpoint_.folder().string(),
                   .detail = fmt::format("{} tensors belong to no part of the network that config.json describes, the "
                                         "first is {} with shape {}",
                                         count, in_quotes(first->name), shape_text(first->shape)),
                   .advice = "check that config.json belongs to these weights"});
  }

  const Checkpoint& checkpoint_;
  bool tied_;
  std::vector<Source> sources_;
  std::set<const TensorInfo*> used_;
  uint64_t bytes_ = 0;
};

// ---- Conversion ------------------------------------------------------------------------------------------------

// Round to nearest even; a NaN stays one.
bf16 bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

// Exact: every half is a float. The multiplication moves the exponent bias from 15 to 127, subnormals included.
float float_of_half(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  if ((half & 0x7c00u) == 0x7c00u) bits = magnitude | 0x7f800000u;  // infinity or NaN
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000u) << 16);
}

// `count` elements of a loadable dtype, at any alignment.
void convert(Dtype dtype, const std::byte* from, bf16* to, int64_t count) {
  if (dtype == Dtype::kBF16) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(bf16));
  } else if (dtype == Dtype::kF16) {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t half;
      std::memcpy(&half, from + i * 2, sizeof(half));
      to[i] = bf16_of(float_of_half(half));
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, from + i * 4, sizeof(value));
      to[i] = bf16_of(value);
    }
  }
}

// ---- Reading ---------------------------------------------------------------------------------------------------

// Rows [begin, end) of a source.
struct Slice {
  const Source* source;
  int64_t begin, end;
};

// What one staging chunk holds: whole rows that are neighbours in the buffer.
struct Window {
  uint64_t begin, end;  // bytes of the buffer
  std::vector<Slice> slices;
};

std::vector<Window> cut(const Image& image, uint64_t chunk_bytes) {
  std::vector<Window> windows;
  for (const Source& source : image.sources()) {
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

// Rows [begin, end) of one tensor, read by one thread.
struct ReadTask {
  const Source* source;
  const Part* part;
  int64_t begin, end;
};

std::vector<ReadTask> tasks_of(const Window& window) {
  std::vector<ReadTask> tasks;
  for (const Slice& slice : window.slices)
    for (const Part& part : slice.source->parts) {
      // The tensor's row for a row of the slice or for the next one below it.
      const auto tensor_row = [&](int64_t row) {
        return std::clamp((row - part.first + part.step - 1) / part.step, int64_t{0}, part.tensor_rows);
      };
      const int64_t end = tensor_row(slice.end);
      const auto rows = static_cast<int64_t>(std::max(kTaskBytes / slice.source->row_bytes(), uint64_t{1}));
      for (int64_t row = tensor_row(slice.begin); row < end; row += rows)
        tasks.push_back({slice.source, &part, row, std::min(row + rows, end)});
    }
  return tasks;
}

// Reads the rows, converts them and puts them in their places. `chunk` stands for the buffer from `chunk_begin` on.
void read_rows(const ReadTask& task, std::byte* chunk, uint64_t chunk_begin, std::vector<std::byte>& scratch) {
  const Source& source = *task.source;
  const Part& part = *task.part;
  const TensorInfo& tensor = *part.tensor;
  const uint64_t tensor_row_bytes = static_cast<uint64_t>(source.cols) * dtype_bits(tensor.dtype) / 8;
  const uint64_t bytes = static_cast<uint64_t>(task.end - task.begin) * tensor_row_bytes;
  const uint64_t from = tensor.offset + static_cast<uint64_t>(task.begin) * tensor_row_bytes;
  const auto place = [&](int64_t row) {
    return chunk + (source.offset_of(part.first + row * part.step) - chunk_begin);
  };

  const bool as_stored = tensor.dtype == Dtype::kBF16 && part.step == 1 && source.stride == source.cols;
  if (as_stored) return tensor.file->read(from, {place(task.begin), bytes});

  scratch.resize(bytes);
  tensor.file->read(from, scratch);
  for (int64_t row = task.begin; row < task.end; ++row) {
    auto* to = reinterpret_cast<bf16*>(place(row));
    convert(tensor.dtype, scratch.data() + static_cast<uint64_t>(row - task.begin) * tensor_row_bytes, to, source.cols);
    std::fill(to + source.cols, to + source.stride, bf16{0});
  }
}

// Fills a chunk with several threads; the first error of any of them is thrown here.
void fill(const Window& window, std::byte* chunk) {
  for (size_t i = 1; i < window.slices.size(); ++i) {  // the alignment gaps
    const uint64_t gap = window.slices[i - 1].source->offset_of(window.slices[i - 1].end);
    std::memset(chunk + (gap - window.begin), 0, window.slices[i].source->offset_of(window.slices[i].begin) - gap);
  }

  const std::vector<ReadTask> tasks = tasks_of(window);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      std::vector<std::byte> scratch;
      for (size_t i = next++; i < tasks.size(); i = next++) read_rows(tasks[i], chunk, window.begin, scratch);
    } catch (...) {
      next = tasks.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const size_t readers = std::min<size_t>({std::thread::hardware_concurrency(), kMostReaders, tasks.size()});
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < readers; ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

// ---- Upload ----------------------------------------------------------------------------------------------------

struct Staging {
  PinnedBuffer chunk;
  Event copied;  // the last copy out of it has run
};

// While one chunk travels the other is filled.
void fill_and_copy(const std::vector<Window>& windows, const std::array<Staging, 2>& chunks, Stream& stream,
                   const Image& image, const DeviceBuffer& buffer, const Progress& progress) {
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window& window = windows[i];
    const Staging& to = chunks[i % chunks.size()];
    to.copied.synchronize();
    fill(window, static_cast<std::byte*>(to.chunk.data()));
    write_device_async(stream, buffer.address() + window.begin, to.chunk.data(), window.end - window.begin, "weights");
    to.copied.record(stream);
    if (i + 1 == windows.size()) break;
    if (progress.report) progress.report(window.end, image.bytes());
  }
  stream.synchronize();
  if (progress.report) progress.report(image.bytes(), image.bytes());
}

void upload(Device& device, Stream& stream, const Image& image, const DeviceBuffer& buffer, const Progress& progress) {
  uint64_t chunk_bytes = std::min(kStagingBytes, image.bytes());
  for (const Source& source : image.sources()) chunk_bytes = std::max(chunk_bytes, source.row_bytes());
  const auto staging = [&](const std::string& name) {
    return Staging{PinnedBuffer(device, name, chunk_bytes), Event(device, name + ".copied")};
  };
  const std::array<Staging, 2> chunks = {staging("weights.staging0"), staging("weights.staging1")};
  try {
    fill_and_copy(cut(image, chunk_bytes), chunks, stream, image, buffer, progress);
  } catch (...) {
    try {
      stream.synchronize();  // copies still read the chunks, which are about to be freed
    } catch (...) {          // the first error says what happened
    }
    throw;
  }
}

}  // namespace

WeightFootprint weight_footprint(const Checkpoint& checkpoint, const ModelConfig& config) {
  const Image image(checkpoint, config);
  return {{image.tensors().begin(), image.tensors().end()}, image.bytes(), image.bytes_per_token()};
}

DecoderWeights DecoderWeights::load(Device& device, Stream& stream, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const Progress& progress) {
  const Image image(checkpoint, config);
  DecoderWeights weights(DeviceBuffer(device, "weights", image.bytes()));
  upload(device, stream, image, weights.buffer_, progress);

  auto source = image.sources().begin();
  const auto matrix = [&] {
    const Source& s = *source++;
    const Weight<bf16> data =
        weight_of<bf16>(weights.buffer_).subview(s.offset / kElementBytes, s.bytes() / kElementBytes);
    weights.ranges_.push_back({s.name, data.address(), s.bytes(), "weight"});
    return WeightMatrix{data, s.rows, s.cols, s.stride};
  };
  const auto vector = [&] { return matrix().data; };

  weights.embedding_ = matrix();
  for (int64_t l = 0; l < config.layers; ++l)  // braces evaluate in the order of the fields
    weights.layers_.push_back({vector(), matrix(), matrix(), vector(), matrix(), matrix()});
  weights.final_norm_ = vector();
  weights.head_ = config.tied ? weights.embedding_ : matrix();
  weights.bytes_per_token_ = image.bytes_per_token();
  return weights;
}

}  // namespace nodewright
