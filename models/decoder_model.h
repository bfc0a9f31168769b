// A loaded decoder: its numbers, its weights and its rotary frequencies, on one device. Immutable after load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/weights.h"
#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace nodewright {

class BackgroundUpload;

class DecoderModel {
 public:
  // Reads the checkpoint folder and uploads it. Throws Error naming the file, key or tensor that is wrong. `context`:
  // tokens of the longest sequence that will be decoded, which rotations of longrope depend on; 0: the model's.
  static DecoderModel load(Device& device, Stream& stream, const std::filesystem::path& folder,
                           const Progress& progress = {}, int64_t context = 0);
  // Returns once every tensor has its place, and reads and uploads them meanwhile, over a stream of its own. A Decoder
  // or an Engine can be made of it at once: their graphs need addresses alone, and their constructors end with wait().
  // Throws Error for what is wrong in a header. `progress` is told by who waits.
  static DecoderModel begin_load(Device& device, const std::filesystem::path& folder, const Progress& progress = {},
                                 int64_t context = 0);
  ~DecoderModel();
  DecoderModel(DecoderModel&&) noexcept;
  DecoderModel& operator=(DecoderModel&&) noexcept;

  // Returns when all weights are on the device: to be called before the first launch that reads them. Throws Error when
  // a file could not be read or a copy failed.
  void wait() const;
  // What reading and uploading the weights took; after wait().
  double upload_ms() const;

  const ModelConfig& config() const { return config_; }
  const DecoderWeights& weights() const { return weights_; }
  // Of that layer (models/config/rope_frequencies.h, rotation_table); empty where positions are learned.
  Weight<float> frequencies(int64_t layer) const;
  std::vector<NamedRange> frequencies_ranges() const;

 private:
  DecoderModel(Device& device, ModelConfig config, DecoderWeights weights, int64_t context);

  std::unique_ptr<BackgroundUpload> upload_;  // null after load(). First: assigning ends it before its memory goes
  Progress progress_;
  double upload_ms_ = 0;  // of load()
  ModelConfig config_;
  DecoderWeights weights_;
  std::vector<DeviceBuffer> rotations_;    // each once
  std::vector<size_t> rotation_of_layer_;  // which of them
};

}  // namespace nodewright
