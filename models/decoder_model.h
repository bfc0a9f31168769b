// A loaded decoder: its numbers, its weights and its rotary frequencies, on one device. Immutable after load,
// but for its weights' place: they may leave the device and come back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/weights.h"
#include "runtime/device.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

class BackgroundUpload;
class MergedAdapters;

struct LoadOptions {
  int64_t context = 0;  // tokens of the longest sequence that will be decoded, which rotations of longrope depend on;
                        // 0: the model's
  bool draws_weights = false;                      // no tensor is read: values are drawn for the shapes of config.json
  bool rounds_to_fp8 = false;                      // LayerMatrices::rounded, of what is merged, too
  bool rounds_head = false;                        // ModelConfig::rounds_head
  CacheFormat cache = CacheFormat::bf16;           // ModelConfig::cache
  Shard shard = {};                                // what of it is loaded: config() is the part's
  Stage stage = {};                                // its index and count; the layers follow from them
  std::vector<std::filesystem::path> merged = {};  // folders of LoRA adapters that become part of the weights
};

class DecoderModel {
 public:
  // Reads the checkpoint folder and uploads it. Throws Error naming the file, key or tensor that is wrong.
  static DecoderModel load(Device& device, Stream& stream, const std::filesystem::path& folder,
                           const Progress& progress = {}, const LoadOptions& options = {});
  // Returns once every tensor has its place, and reads and uploads them meanwhile, over a stream of its own. An
  // Engine can be made of it at once: its graphs need addresses alone, and its constructor ends with wait(). Throws
  // Error for what is wrong in a header. `progress` is called by the thread that waits.
  static DecoderModel begin_load(Device& device, const std::filesystem::path& folder, const Progress& progress = {},
                                 const LoadOptions& options = {});
  ~DecoderModel();
  DecoderModel(DecoderModel&&) noexcept;
  DecoderModel& operator=(DecoderModel&&) noexcept;

  // Returns when all weights are on the device: to be called before the first launch that reads them. Throws Error when
  // a file could not be read or a copy failed.
  void wait() const;
  // What reading and uploading the weights took; after wait().
  double upload_ms() const;

  // While an engine sleeps (engine/sleep.h). One thread at a time, and nothing that reads the weights may be in flight;
  // what knows their addresses is of no use after leave_device().

  // Copies the weights to pinned host memory, where they stay until they are forgotten. Throws Error where that is
  // short, and keeps nothing then.
  void copy_to_host();
  // Returns when the copy's memory is free, also that of a copy which begin_forget_copy() gave up.
  void forget_copy();
  // Returns at once and frees the copy on a thread of its own: unpinning takes longer the larger it is. There is never
  // a second copy beside one that goes.
  void begin_forget_copy();
  bool has_copy() const { return copy_ != nullptr; }
  // Gives the device memory of the weights back, whether or not there is a copy of them.
  void leave_device();
  // Takes device memory at another address, and fills it meanwhile from the copy, or without one from the checkpoint:
  // its tensors must have the shapes of config(), and may have other values. To be followed by wait(). Throws Error
  // where memory is short or the checkpoint is another, and has changed nothing then.
  void return_to_device();
  bool is_on_device() const { return weights_.bytes() > 0; }

  const ModelConfig& config() const { return config_; }
  // The format that its matrices are stored in, for people: "fp8, blocks of 128 x 128".
  // Empty where they are stored element by element.
  const std::string& stored_as() const { return stored_as_; }
  const DecoderWeights& weights() const { return weights_; }
  // The layer's rotation table (models/config/rope_frequencies.h); empty where positions are learned.
  Weight<float> frequencies(int64_t layer) const;
  std::vector<NamedRange> frequencies_ranges() const;

 private:
  DecoderModel(Device& device, std::filesystem::path folder, ModelConfig config, DecoderWeights weights,
               const LoadOptions& options);
  static std::shared_ptr<const MergedAdapters> merged_of(const LoadOptions& options, const ModelConfig& config);
  void begin_upload(Checkpoint checkpoint, std::vector<WeightSource> sources);
  struct HostCopy;

  std::shared_ptr<const MergedAdapters> merged_;  // null: none. Before what uploads them
  // Null after load(). First, as what else still fills the weights' memory: assigning ends it before that goes.
  std::unique_ptr<BackgroundUpload> upload_;
  std::unique_ptr<HostCopy> copy_;  // null: there is none
  std::jthread freeing_copy_;       // of one that was given up
  Progress progress_;
  double upload_ms_ = 0;  // of load()
  Device* device_;
  std::filesystem::path folder_;
  bool draws_weights_ = false;
  LayerMatrices layer_matrices_ = LayerMatrices::stored;
  ModelConfig config_;
  std::string stored_as_;
  DecoderWeights weights_;
  std::vector<DeviceBuffer> rotations_;    // each once
  std::vector<size_t> rotation_of_layer_;  // which of them
};

}  // namespace nodewright
