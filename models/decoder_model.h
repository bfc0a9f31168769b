// A loaded decoder: its numbers, its weights and its rotary frequencies, on one device. Immutable after load.
#pragma once

#include <filesystem>

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
  Weight<float> frequencies() const { return weight_of<float>(frequencies_); }  // [head_dim / 2] radians a position
  NamedRange frequencies_range() const {
    return {frequencies_.name(), frequencies_.address(), frequencies_.bytes(), "weight"};
  }

 private:
  DecoderModel(ModelConfig config, DecoderWeights weights, DeviceBuffer frequencies)
      : config_(std::move(config)), weights_(std::move(weights)), frequencies_(std::move(frequencies)) {}

  ModelConfig config_;
  DecoderWeights weights_;
  DeviceBuffer frequencies_;
};

}  // namespace nodewright
