// Copies weights from their files to device memory. Threads read rows of tensors into pinned chunks and convert them
// there, while earlier chunks are being copied.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "kernels_src/product/format/weight_layout.h"
#include "models/weights/row_stride.h"
#include "models/weights/safetensors.h"
#include "models/weights/weight_delta.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

// Rows of a tensor that become rows of a WeightSource. For each i below `rows`, row from + i * from_step of the tensor,
// from column from_col on, becomes row first + i * step of the source.
struct WeightPart {
  const TensorInfo* tensor;
  int64_t rows, first, step;
  bool transposed = false;  // the tensor's columns are the rows meant here; from_step is 1 then
  int64_t from = 0, from_step = 1;
  const std::vector<WeightDelta>* deltas = nullptr;  // added to the tensor before it is rounded; null: nothing
  int64_t from_col = 0;

  // The length of one of those rows.
  int64_t tensor_cols() const { return tensor->shape.size() < 2 ? 1 : tensor->shape[transposed ? 0 : 1]; }
};

// What the elements of a WeightSource are: bf16, or codes of its WeightLayout, or what comes after those, in words of
// 32 bits. Both are of an encoded tensor, scales of FP8 of its block at row `from` and column `from_col` of their part;
// otherwise rows of numbers are rounded to FP8, with a scale each.
enum class SourceElement : uint8_t { bf16, codes, scales };

// A weight in the device buffer, under its name, and the tensors that its rows come from.
struct WeightSource {
  std::string name;
  uint64_t offset;                // bytes from the start of the buffer
  int64_t rows, cols;             // of the weight
  int64_t stride;                 // elements from one row to the next; those after the first `cols` become zero
  std::vector<WeightPart> parts;  // each row is in exactly one part; no parts: all rows become zero
  SourceElement element = SourceElement::bf16;
  WeightLayout layout = {};

  uint64_t row_bytes() const {
    return static_cast<uint64_t>(element == SourceElement::scales ? stride * 4 : layout.row_bytes(stride));
  }
  uint64_t bytes() const { return static_cast<uint64_t>(rows) * row_bytes(); }
  uint64_t offset_of(int64_t row) const { return offset + static_cast<uint64_t>(row) * row_bytes(); }
};

// Reports the progress of a load, in bytes of device memory written. `report` is called by the thread that waits for
// the load, at least once, at the end.
struct Progress {
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> report;  // may be empty
};

// Three quarters of the processors, which leaves one for the thread that submits copies.
unsigned usual_readers();

// The chunks and threads of an upload, measured with `nodewright bench load`: at 55 GB/s (PCIe 5 x16) copying a chunk
// of 8 MiB takes 0.15 ms, thirty times as long as submitting the copy. Two chunks are being copied or wait to be while
// the readers fill the others, 1 MiB a read. On sixteen processors twelve readers reach 93 to 94 % of the link, sixteen
// 84 % (bench/results/2026-11-21-h200-load.txt).
struct UploadForm {
  uint64_t chunk_bytes = uint64_t{8} << 20;  // of each pinned chunk; at least the longest row
  size_t chunks = 6;                         // at least 2
  unsigned readers = usual_readers();        // threads that read, at least 1
};

// Fills `to` with the sources, which lie in it one after the other, and returns when all have arrived, or early when
// `stop` is requested. The gaps between sources are undefined. Throws Error when a file cannot be read or no longer
// matches its header, and when memory is short. No thread and no copy is left running in any case.
void upload_weights(Device& device, Stream& stream, std::span<const WeightSource> sources, const NamedRange& to,
                    const Progress& progress, const UploadForm& form = {}, const std::stop_token& stop = {});

}  // namespace nodewright
