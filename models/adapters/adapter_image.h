// An adapter in host memory as a slot holds it: converted, interleaved and padded, to be copied as a whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "models/adapters/adapter_layout.h"
#include "models/adapters/lora_adapter.h"
#include "models/config/model_config.h"
#include "runtime/buffers/staging_buffer.h"

namespace nodewright {

class AdapterImage {
 public:
  // Reads all of the adapter into page-locked memory of layout.slot_bytes(). A and B become bf16, rounded to nearest
  // even. May run on a thread of its own. Throws Error where a file ends early, a value is not finite or memory is
  // short.
  AdapterImage(Device& device, const LoraAdapter& adapter, const ModelConfig& config, const AdapterLayout& layout);

  std::span<const std::byte> bytes() const { return {memory_.data(), memory_.bytes()}; }
  const std::filesystem::path& folder() const { return folder_; }
  int64_t rank() const { return rank_; }

 private:
  std::filesystem::path folder_;
  int64_t rank_;
  StagingBuffer memory_;
};

}  // namespace nodewright
