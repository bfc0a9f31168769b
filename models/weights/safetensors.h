// The header of one safetensors file: which tensors it holds and where. It reads no tensor data.
// Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/checked_file.h"

namespace nodewright {

// Element types of the format. BF16, F16 and F32 can be loaded (models/weights/weights.h); the others are only listed.
enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kBF16,
  kF16,
  kF32,
  kF64,
  kC64,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF6E2M3,
  kF6E3M2,
  kF4
};
std::string_view dtype_name(Dtype dtype);  // as the file spells it: "BF16"
unsigned dtype_bits(Dtype dtype);          // bits of one element

class EncodedMatrix;

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kBF16;
  std::vector<int64_t> shape;         // outermost first; empty for a scalar
  const CheckedFile* file = nullptr;  // outlives this description; null: its values are drawn
  uint64_t offset = 0;                // first byte, from the start of the file
  uint64_t bytes = 0;
  // A matrix in another format: what it is stored as, while dtype and offset are those of its codes, and bytes those of
  // all that it is made of. Null: dtype says how each element is stored.
  const EncodedMatrix* encoded = nullptr;
};

// All tensors of a file, by offset. Throws Error, naming file, tensor and numbers, unless the header is within its
// 100 000 000 bytes, is a UTF-8 JSON object without duplicate names, and its tensors fill the data section exactly:
// from 0, without hole or overlap, to the end of the file. Zero-size and rank-0 tensors are legal.
std::vector<TensorInfo> read_safetensors_header(const CheckedFile& file);

std::string shape_text(const std::vector<int64_t>& shape);  // "[2048, 512]"

}  // namespace nodewright
