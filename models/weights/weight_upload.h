// The way of weights from their files to device memory: threads read rows into pinned chunks and convert them there,
// while the chunks before travel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "kernels_src/args.h"
#include "models/weights/safetensors.h"
#include "models/weights/weight_delta.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

// Row from + i * from_step of a tensor, from its column from_col on, becomes row first + i * step of a source, for i
// below `rows`. Of a transposed tensor columns are rows and rows columns, and from_step is 1.
struct WeightPart {
  const TensorInfo* tensor;
  int64_t rows, first, step;
  bool transposed = false;
  int64_t from = 0, from_step = 1;
  const std::vector<WeightDelta>* deltas = nullptr;  // added to the tensor before it is rounded; null: nothing
  int64_t from_col = 0;

  // All columns of the tensor, in a row as `rows` and `first` count them.
  int64_t tensor_cols() const { return tensor->shape.size() < 2 ? 1 : tensor->shape[transposed ? 0 : 1]; }
};

// One named range of the device buffer and the tensors it is made of.
struct WeightSource {
  std::string name;
  uint64_t offset;                // bytes from the start of the buffer
  int64_t rows, cols, stride;     // bf16 elements; columns from cols on become zero
  std::vector<WeightPart> parts;  // together they give every row once; none: all rows are zero

  uint64_t row_bytes() const { return static_cast<uint64_t>(stride) * sizeof(bf16); }
  uint64_t bytes() const { return static_cast<uint64_t>(rows) * row_bytes(); }
  uint64_t offset_of(int64_t row) const { return offset + static_cast<uint64_t>(row) * row_bytes(); }
};

// How far a load is, as bytes of device memory written. Called from the thread that waits for it, at least once at the
// end.
struct Progress {
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> report;  // may be empty
};

// Three quarters of the processors, so that the thread which submits copies finds one.
unsigned usual_readers();

// What an upload works with, measured with `nodewright bench load`: at 55 GB/s (PCIe 5 x16) a chunk of 8 MiB travels in
// 0.15 ms, thirty times what submitting it costs. Two chunks travel or wait for it while the readers fill the others,
// 1 MiB each. On sixteen processors twelve readers reach 93 to 94 % of the link and sixteen 84 %
// (bench/results/2026-11-21-h200-load.txt).
struct UploadForm {
  uint64_t chunk_bytes = uint64_t{8} << 20;  // of each pinned chunk; at least the longest row
  size_t chunks = 6;                         // at least 2
  unsigned readers = usual_readers();        // threads that read, at least 1
};

// Fills `to` with the sources, which lie in it one after the other, and returns when all has arrived, or early when
// `stop` asks; what the gaps between them hold is open. Throws Error when a file cannot be read or no longer holds what
// its header said, and when memory is short. However it ends, no thread and no copy is left behind.
void upload_weights(Device& device, Stream& stream, std::span<const WeightSource> sources, const NamedRange& to,
                    const Progress& progress, const UploadForm& form = {}, const std::stop_token& stop = {});

}  // namespace nodewright
