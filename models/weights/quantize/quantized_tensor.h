// One matrix in the formats that `nodewright quantize` writes: which tensors it becomes, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/weights/quantize/safetensors_writer.h"
#include "models/weights/safetensors.h"

namespace nodewright {

// fp8_block: e4m3 with a scale for each 128 x 128, as quant_method "fp8". The others are compressed-tensors': e4m3 with
// a scale for each row, int4 with one for each 128, 64 or 32 columns of a row.
enum class QuantizedFormat : uint8_t { fp8_block, fp8_row, int4 };

// The columns that share a scale of int4: the largest of those sizes that divides the width. Nothing: none does.
std::optional<int64_t> int4_group(int64_t cols);

// What becomes of `tensor`, a matrix [rows, cols] of BF16, F16 or F32, in the order of quantize_tensor(). Of int4, it
// has groups.
std::vector<WrittenTensor> quantized_tensors(QuantizedFormat format, const TensorInfo& tensor);

// Their data, one after the other, made by `threads` threads. Throws Error, naming the tensor, where a value is not
// finite or the file ends early.
std::vector<std::byte> quantize_tensor(QuantizedFormat format, const TensorInfo& tensor, unsigned threads);

}  // namespace nodewright
