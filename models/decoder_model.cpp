#include "models/decoder_model.h"

#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "models/adapters/merged_adapters.h"
#include "models/config/rope_frequencies.h"
#include "models/weights/background_upload.h"
#include "models/weights/checkpoint.h"
#include "runtime/calls/cpu_driver_api.h"
#include "runtime/error.h"
#include "runtime/memory/staging_buffer.h"

namespace nodewright {

namespace {

// A CPU driver that does so leaves a copy's pinned source alone only where the copy blocks; ours may be read again.
bool overwrites_sources(const Device& device) {
  return device.driver().is_cpu() && device.driver().cpu_options().poison;
}

Checkpoint checkpoint_of(const std::filesystem::path& folder, bool draws) {
  return draws ? Checkpoint::dummy(folder) : Checkpoint::open(folder);
}

std::string format_words(const Checkpoint& checkpoint) {
  return checkpoint.format() == nullptr ? "" : checkpoint.format()->words();
}

ModelConfig part_of(const ModelConfig& whole, const LoadOptions& options) {
  ModelConfig part = stage_of(shard_of(whole, options.shard), options.stage.index, options.stage.count);
  part.cache = options.cache, part.rounds_head = options.rounds_head;
  return part;
}

LayerMatrices matrices_of(const LoadOptions& options) {
  if (options.rounds_to_fp8) return LayerMatrices::rounded;
  return options.merged.empty() ? LayerMatrices::stored : LayerMatrices::bf16;
}

}  // namespace

// The weights in pinned memory, and the stream on which they travel there and back.
struct DecoderModel::HostCopy {
  HostCopy(Device& device, uint64_t bytes) : memory(device, "weights.copy", bytes), stream(device, "weights.copy") {}
  ~HostCopy() {
    try {
      stream.synchronize();
    } catch (const Error&) {  // the device is lost, and copies nothing any more
    }
  }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  StagingBuffer memory;
  Stream stream;
};

DecoderModel::DecoderModel(Device& device, std::filesystem::path folder, ModelConfig config, DecoderWeights weights,
                           const LoadOptions& options)
    : device_(&device),
      folder_(std::move(folder)),
      draws_weights_(options.draws_weights),
      layer_matrices_(matrices_of(options)),
      config_(std::move(config)),
      weights_(std::move(weights)) {
  config_.layouts = weights_.layouts();
  if (config_.learned_positions) return;
  const auto add_rotations = [&](const char* name, const RopeConfig* rope) {
    const std::vector<float> values =
        rotation_table(config_, rope, options.context > 0 ? options.context : config_.max_position);
    const DeviceBuffer& buffer = rotations_.emplace_back(device, name, values.size() * sizeof(float));
    write_device(device, buffer.address(), std::as_bytes(std::span(values)), buffer.name());
    return rotations_.size() - 1;
  };
  const size_t global = add_rotations("rope.frequencies", &config_.rope);
  const size_t local = config_.local_rope ? add_rotations("rope.local_frequencies", &*config_.local_rope) : global;
  const size_t none = config_.unrotated.empty() ? global : add_rotations("rope.no_frequencies", nullptr);
  for (int64_t l = 0; l < config_.layers; ++l)
    rotation_of_layer_.push_back(!config_.rotates(l) ? none : config_.is_sliding(l) ? local : global);
}

DecoderModel DecoderModel::load(Device& device, Stream& stream, const std::filesystem::path& folder,
                                const Progress& progress, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const ModelConfig whole = read_model_config(folder);
  ModelConfig config = part_of(whole, options);
  const Checkpoint checkpoint = checkpoint_of(folder, options.draws_weights);
  std::shared_ptr<const MergedAdapters> merged = merged_of(options, whole);
  DecoderWeights::Places placed = DecoderWeights::place(device, checkpoint, config, matrices_of(options));
  if (merged) merged->attach(placed.sources);
  upload_weights(device, stream, placed.sources, placed.weights.range(), progress);
  DecoderModel model(device, folder, std::move(config), std::move(placed.weights), options);
  model.merged_ = std::move(merged);
  model.stored_as_ = format_words(checkpoint);
  model.upload_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return model;
}

DecoderModel DecoderModel::begin_load(Device& device, const std::filesystem::path& folder, const Progress& progress,
                                      const LoadOptions& options) {
  const ModelConfig whole = read_model_config(folder);
  ModelConfig config = part_of(whole, options);
  Checkpoint checkpoint = checkpoint_of(folder, options.draws_weights);
  std::shared_ptr<const MergedAdapters> merged = merged_of(options, whole);
  DecoderWeights::Places placed = DecoderWeights::place(device, checkpoint, config, matrices_of(options));
  DecoderModel model(device, folder, std::move(config), std::move(placed.weights), options);
  model.merged_ = std::move(merged);
  model.stored_as_ = format_words(checkpoint);
  model.progress_ = progress;
  model.begin_upload(std::move(checkpoint), std::move(placed.sources));
  return model;
}

std::shared_ptr<const MergedAdapters> DecoderModel::merged_of(const LoadOptions& options, const ModelConfig& config) {
  return options.merged.empty() ? nullptr : std::make_shared<const MergedAdapters>(options.merged, config);
}

void DecoderModel::begin_upload(Checkpoint checkpoint, std::vector<WeightSource> sources) {
  if (merged_) merged_->attach(sources);
  upload_ = std::make_unique<BackgroundUpload>(*device_, std::move(checkpoint), std::move(sources), weights_.range());
}

DecoderModel::~DecoderModel() {
  upload_.reset();
  forget_copy();
}
DecoderModel::DecoderModel(DecoderModel&&) noexcept = default;
DecoderModel& DecoderModel::operator=(DecoderModel&&) noexcept = default;

void DecoderModel::wait() const {
  if (upload_) upload_->wait(progress_);
  if (copy_) copy_->stream.synchronize();
}

double DecoderModel::upload_ms() const { return upload_ ? upload_->ms() : upload_ms_; }

void DecoderModel::copy_to_host() {
  if (copy_) return;
  forget_copy();  // host memory has room for one
  wait();
  auto copy = std::make_unique<HostCopy>(*device_, weights_.bytes());
  copy->memory.pin();
  const NamedRange range = weights_.range();
  read_device_async(copy->stream, copy->memory.data(), range.address, range.bytes, range.name);
  copy->stream.synchronize();
  copy_ = std::move(copy);
}

void DecoderModel::forget_copy() {
  copy_.reset();
  if (freeing_copy_.joinable()) freeing_copy_.join();
}

void DecoderModel::begin_forget_copy() {
  if (!copy_) return;
  try {
    freeing_copy_ = std::jthread([copy = std::move(copy_)]() mutable { copy.reset(); });
  } catch (const std::system_error&) {  // no thread is to be had: the copy went with the attempt
  }
}

void DecoderModel::leave_device() {
  upload_.reset();
  try {
    if (copy_) copy_->stream.synchronize();
  } catch (const Error&) {  // the device is lost; what is left is to free
  }
  weights_.release_memory();
}

void DecoderModel::return_to_device() {
  if (is_on_device()) return;
  try {
    if (copy_) {
      weights_.take_memory();
      const NamedRange range = weights_.range();
      if (overwrites_sources(*device_))
        write_device(*device_, range.address, {copy_->memory.data(), range.bytes}, range.name);
      else
        write_device_async(copy_->stream, range.address, copy_->memory.data(), range.bytes, range.name);
      return;
    }
    Checkpoint checkpoint = checkpoint_of(folder_, draws_weights_);
    DecoderWeights::Places placed = DecoderWeights::place(*device_, checkpoint, config_, layer_matrices_);
    if (placed.weights.layouts() != config_.layouts)  // graphs are of those
      throw Error({.doing = "read again",
                   .object = folder_.string(),
                   .detail = "its matrices are stored in other formats than when it was loaded",
                   .advice = "start the program anew"});
    weights_ = std::move(placed.weights);
    begin_upload(std::move(checkpoint), std::move(placed.sources));
  } catch (...) {
    leave_device();
    throw;
  }
}

Weight<float> DecoderModel::frequencies(int64_t layer) const {
  if (rotations_.empty()) return {};
  return weight_of<float>(rotations_[rotation_of_layer_[static_cast<size_t>(layer)]]);
}

std::vector<NamedRange> DecoderModel::frequencies_ranges() const {
  std::vector<NamedRange> ranges;
  for (const DeviceBuffer& b : rotations_) ranges.push_back({b.name(), b.address(), b.bytes(), "weight"});
  return ranges;
}

}  // namespace nodewright
