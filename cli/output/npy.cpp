#include "cli/output/npy.h"

#include <fmt/format.h>

#include <string>

#include "cli/output/output_file.h"

namespace nodewright::cli {

void write_npy(const std::filesystem::path& path, std::span<const float> values, int64_t rows, int64_t columns) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  // Magic, version and length take 10 bytes; the data starts at a multiple of 64 (numpy.lib.format).
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\x00';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  write_whole_file(path, file);
}

}  // namespace nodewright::cli
