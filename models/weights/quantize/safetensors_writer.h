// Writes one safetensors file: the header first, then the data of its tensors in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/weights/safetensors.h"

namespace nodewright {

struct WrittenTensor {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Creates the file. Throws Error that names it and has the system's words, as the calls below.
  SafetensorsWriter(std::filesystem::path path, std::span<const WrittenTensor> tensors);

  // The next bytes of the data.
  void append(std::span<const std::byte> data);
  // After the last of them.
  void close();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace nodewright
