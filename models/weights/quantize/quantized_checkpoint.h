// A checkpoint folder made from another: the matrices of the layers quantized, everything else as it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/weights/quantize/quantized_tensor.h"
#include "models/weights/weight_upload.h"

namespace nodewright {

struct QuantizedCheckpoint {
  uint64_t bytes_before = 0, bytes = 0;  // of all tensors
  uint64_t matrices = 0;                 // that were quantized
  std::vector<std::string> too_odd;      // matrices of layers whose width has no groups, which stay as they were
};

// Writes `to`, a folder that is not there yet and whose parent is: shards as in `from`, config.json with a
// quantization_config, an index where there are several files, and copies of the other files that are no weights, as
// the tokenizer's. Matrices of layers, experts among them, are quantized by `threads` threads, one tensor at a time in
// memory; embedding, head and routers stay. The folder appears whole or not at all: until it is done it has another
// name, and it goes where this throws. `progress` is given bytes of tensors that have been read, and may throw.
// Throws Error where `to` exists (usage), where `from` is a GGUF file, quantized already, of a network that is not
// supported or that stores its matrices inputs first, where a value is not finite, and where a file cannot be read or
// written.
QuantizedCheckpoint quantize_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                        QuantizedFormat format, unsigned threads, const Progress& progress = {});

}  // namespace nodewright
