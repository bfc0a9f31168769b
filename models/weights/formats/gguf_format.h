// The tensors of GGUF files as a checkpoint's: blocks of quantized elements row by row, and experts that share a
// tensor.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/gguf_file.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {

// Opens the model, and appends what it is made of. Throws Error as GgufModel::open.
std::unique_ptr<WeightFormat> open_gguf(const std::filesystem::path& path,
                                        std::vector<std::unique_ptr<CheckedFile>>& files,
                                        std::vector<TensorInfo>& tensors);

// Whole blocks to floats, in the arithmetic of gguf's dequantize(). `to`: the elements of as many blocks.
void dequantize_blocks(const GgufType& type, const std::byte* blocks, std::span<float> to);

// As of EncodedMatrix, of a matrix in blocks: how kernels read it, and whole blocks as codes and as what groups share.
// Scales and offsets are rounded to fp16; throws Error that names the tensor where one is beyond 511.
std::optional<WeightLayout> group_layout_of(const GgufType& type, int64_t cols);
void group_codes_of(const GgufType& type, const std::byte* blocks, const WeightLayout& layout, std::span<uint8_t> to);
std::vector<uint32_t> group_words_of(const GgufType& type, const std::byte* blocks, int64_t count,
                                     const WeightLayout& layout, const TensorInfo& tensor);

}  // namespace nodewright
