// NumPy's .npy file, version 1.0: two-dimensional float32 in C order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace nodewright::cli {

// Writes values [rows, columns]. The file appears whole or not at all. Throws Error naming it.
void write_npy(const std::filesystem::path& path, std::span<const float> values, int64_t rows, int64_t columns);

}  // namespace nodewright::cli
