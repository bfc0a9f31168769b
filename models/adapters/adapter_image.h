// An adapter in host memory as a slot holds it: converted, interleaved and padded, to be copied as a whole. Where ranks
// share a model, a part for the slot of each.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/adapters/adapter_layout.h"
#include "models/adapters/lora_adapter.h"
#include "models/config/model_config.h"
#include "runtime/memory/staging_pool.h"

namespace nodewright {

// Whose slots an image is for: a device with the layout there, which is of `config`, of a rank its part of the network.
struct AdapterPlace {
  Device* device;
  const ModelConfig* config;
  const AdapterLayout* layout;
  std::shared_ptr<StagingPool> pool = {};  // of layout->slot_bytes(); null: the image has memory of its own
};

class AdapterImage {
 public:
  // Reads all of the adapter into page-locked memory, layout.slot_bytes() of each rank. A and B become bf16, rounded to
  // nearest even. Of qkv and gate_up a rank has the rows of B that its outputs have, and all of A; of out and down the
  // columns of A that its weights have, and all of B. May run on a thread of its own. Throws Error where a file ends
  // early, a value is not finite or memory is short.
  AdapterImage(const LoraAdapter& adapter, std::span<const AdapterPlace> ranks);
  AdapterImage(Device& device, const LoraAdapter& adapter, const ModelConfig& config, const AdapterLayout& layout);
  ~AdapterImage();  // no copy from it may be under way
  AdapterImage(AdapterImage&&) = default;
  AdapterImage& operator=(AdapterImage&&) = delete;

  std::span<const std::byte> bytes(size_t rank = 0) const {
    const StagingBuffer& memory = parts_.at(rank);
    return {memory.data(), memory.bytes()};
  }
  size_t ranks() const { return parts_.size(); }
  const std::filesystem::path& folder() const { return folder_; }
  int64_t rank() const { return rank_; }  // of its matrices, the largest

 private:
  std::filesystem::path folder_;
  int64_t rank_;
  std::vector<StagingBuffer> parts_;                 // by the rank of a team
  std::vector<std::shared_ptr<StagingPool>> pools_;  // of each part; null: none
};

}  // namespace nodewright
