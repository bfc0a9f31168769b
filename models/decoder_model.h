// A loaded decoder: its numbers, its weights and its rotary frequencies, on one device. Immutable after load.
#pragma once

#include <filesystem>
#include <vector>

#include "models/model_config.h"
#include "models/weights.h"
#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace nodewright {

class DecoderModel {
 public:
  // Reads the checkpoint folder and uploads it. Throws Error naming the file, key or tensor that is wrong.
  static DecoderModel load(Device& device, Stream& stream, const std::filesystem::path& folder,
                           const Progress& progress = {});

  const ModelConfig& config() const { return config_; }
  const DecoderWeights& weights() const { return weights_; }
  // [head_dim / 2] radians a position, of that layer; empty where positions are learned.
  Weight<float> frequencies(int64_t layer) const;
  std::vector<NamedRange> frequencies_ranges() const;

 private:
  DecoderModel(ModelConfig config, DecoderWeights weights) : config_(std::move(config)), weights_(std::move(weights)) {}

  ModelConfig config_;
  DecoderWeights weights_;
  std::vector<DeviceBuffer> frequencies_;  // of global layers, then of sliding ones if theirs are others
};

}  // namespace nodewright
