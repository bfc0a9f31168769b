// The tensors that a format reads: found and checked by name, and their elements as floats.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "models/weights/checkpoint.h"

namespace nodewright {

// "model.layers.0.mlp.up_proj" of its ".weight"; empty of anything else.
std::string module_of(const std::string& name);

// Throws Error that names the tensor and its file.
[[noreturn]] void refuse_stored(const TensorInfo& tensor, std::string detail, std::string advice = {});

// Throws Error, with what was expected and what was found, unless the tensor is there with one of the shapes and
// dtypes. `of`: the matrix that it is a part of.
const TensorInfo& require_stored(const Checkpoint& checkpoint, const std::string& name,
                                 std::initializer_list<std::vector<int64_t>> shapes,
                                 std::initializer_list<Dtype> dtypes, const std::string& of);

// Elements [first, first + to.size()) of BF16, F16, F32, F8_E4M3, F8_E8M0, or U8 that are F8_E8M0. Throws
// Error where the file ends early.
void read_values(const TensorInfo& tensor, uint64_t first, std::span<float> to);

// Elements of `T`, as they are stored.
template <class T, size_t kCount>
void read_elements(const TensorInfo& tensor, uint64_t first, std::span<T, kCount> to) {
  tensor.file->read(tensor.offset + first * sizeof(T), std::as_writable_bytes(to));
}

// The values of all codes of a byte. E4M3 (fn): no infinities, NaN at 0x7f and 0xff; E8M0: 2^(code - 127), NaN at 0xff
// (OCP 8-bit floating point, 1.0; microscaling formats, 1.0, 5.4.1).
std::span<const float, 256> values_of_e4m3();
std::span<const float, 256> values_of_e8m0();
// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the same negated.
std::span<const float, 16> values_of_e2m1();

}  // namespace nodewright
