#include "models/weights/quantize/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/error.h"

namespace nodewright {

uint64_t WrittenTensor::bytes() const {
  uint64_t bits = dtype_bits(dtype);
  for (const int64_t dimension : shape) bits *= static_cast<uint64_t>(dimension);
  return bits / 8;
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::span<const WrittenTensor> tensors)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wbe"), &std::fclose) {
  if (!file_) fail();
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};  // transformers asks for it
  uint64_t end = 0;
  for (const WrittenTensor& tensor : tensors) {
    const uint64_t begin = end;
    end += tensor.bytes();
    header[tensor.name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  const uint64_t length = text.size();
  append(std::as_bytes(std::span(&length, 1)));
  append(std::as_bytes(std::span(text)));
}

void SafetensorsWriter::append(std::span<const std::byte> data) {
  if (std::fwrite(data.data(), 1, data.size(), file_.get()) != data.size()) fail();
}

void SafetensorsWriter::close() {
  if (std::fclose(file_.release()) != 0) fail();
}

void SafetensorsWriter::fail() const {
  throw Error({.doing = "write", .object = path_.string(), .detail = std::strerror(errno)});
}

}  // namespace nodewright
