// A matrix whose elements a checkpoint does not store as numbers one after the other: codes with scales beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels_src/product/format/weight_layout.h"
#include "models/weights/safetensors.h"

namespace nodewright {

// How many rows and columns of a matrix share a scale.
struct ScaleBlock {
  int64_t rows, cols;
};

// Immutable: several threads may decode rows of one matrix.
class EncodedMatrix {
 public:
  virtual ~EncodedMatrix() = default;
  EncodedMatrix(const EncodedMatrix&) = delete;
  EncodedMatrix& operator=(const EncodedMatrix&) = delete;

  // Rows [first, first + rows) as the format defines them, in fp32 arithmetic: [rows, cols] floats. Throws Error,
  // naming the tensor, where a file ends early or a stored index is out of range.
  virtual void decode(int64_t first, int64_t rows, std::span<float> to) const = 0;

  // As few rows as one decode() of them costs little more a row than one of all.
  virtual int64_t rows_at_once() const { return 1; }

  // Where the codes are e4m3, byte by byte as stored().front() has them, each times the scale of its block: that block.
  // Empty: the matrix is of another kind.
  virtual std::optional<ScaleBlock> fp8_block() const { return {}; }
  // The scales of those blocks, of rows [first, end) of them: [end - first, blocks of a row].
  virtual std::vector<float> fp8_scales(int64_t /*first*/, int64_t /*end*/) const { return {}; }

  // Where the codes are integers, with a scale for each group of a row's columns, in order: how kernels read them.
  // Empty: the matrix is of another kind, or kernels read no such groups. It may read the order of columns, and throws
  // Error as decode() does.
  virtual std::optional<WeightLayout> group_layout() const { return {}; }
  // The codes of rows [first, first + rows) in that layout, a byte each: [rows, cols] in the order of columns. Only
  // where group_layout() is not empty; throws Error as decode() does.
  virtual void group_codes(int64_t /*first*/, int64_t /*rows*/, std::span<uint8_t> /*to*/) const {}
  // And what groups share: [rows, group_words(cols)]. Throws Error also for a zero that is no code.
  virtual std::vector<uint32_t> group_words(int64_t /*first*/, int64_t /*rows*/) const { return {}; }

  // "int4, groups of 128".
  const std::string& format() const { return format_; }
  // The tensors that it reads, the codes first. They live as long as the checkpoint.
  std::span<const TensorInfo* const> stored() const { return stored_; }
  // The bytes of them that it reads.
  virtual uint64_t bytes() const {
    uint64_t sum = 0;
    for (const TensorInfo* one : stored_) sum += one->bytes;
    return sum;
  }

 protected:
  EncodedMatrix(std::string format, std::vector<const TensorInfo*> stored)
      : format_(std::move(format)), stored_(std::move(stored)) {}

 private:
  std::string format_;
  std::vector<const TensorInfo*> stored_;
};

// A matrix in FP8 or int4 whose values are drawn (models/weights/drawn_weights.h).
class DrawnMatrix : public EncodedMatrix {
 public:
  DrawnMatrix(std::optional<ScaleBlock> fp8_block, std::optional<WeightLayout> int4)
      : EncodedMatrix("drawn", {}), fp8_block_(fp8_block), int4_(int4) {}
  void decode(int64_t, int64_t, std::span<float>) const override {}
  std::optional<ScaleBlock> fp8_block() const override { return fp8_block_; }
  std::optional<WeightLayout> group_layout() const override { return int4_; }

 private:
  std::optional<ScaleBlock> fp8_block_;
  std::optional<WeightLayout> int4_;
};

}  // namespace nodewright
