#include "models/decoder_model.h"

#include <chrono>
#include <utility>

#include "models/config/rope_frequencies.h"
#include "models/weights/background_upload.h"
#include "models/weights/checkpoint.h"

namespace nodewright {

DecoderModel::DecoderModel(Device& device, ModelConfig config, DecoderWeights weights, int64_t context)
    : config_(std::move(config)), weights_(std::move(weights)) {
  if (config_.learned_positions) return;
  const auto add_rotations = [&](const char* name, const RopeConfig* rope) {
    const std::vector<float> values = rotation_table(config_, rope, context > 0 ? context : config_.max_position);
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
                                const Progress& progress, int64_t context) {
  const auto start = std::chrono::steady_clock::now();
  ModelConfig config = read_model_config(folder);
  DecoderWeights weights = DecoderWeights::load(device, stream, Checkpoint::open(folder), config, progress);
  DecoderModel model(device, std::move(config), std::move(weights), context);
  model.upload_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return model;
}

DecoderModel DecoderModel::begin_load(Device& device, const std::filesystem::path& folder, const Progress& progress,
                                      int64_t context) {
  ModelConfig config = read_model_config(folder);
  Checkpoint checkpoint = Checkpoint::open(folder);
  DecoderWeights::Places placed = DecoderWeights::place(device, checkpoint, config);
  DecoderModel model(device, std::move(config), std::move(placed.weights), context);
  model.progress_ = progress;
  model.upload_ = std::make_unique<BackgroundUpload>(device, std::move(checkpoint), std::move(placed.sources),
                                                     model.weights_.range());
  return model;
}

DecoderModel::~DecoderModel() { upload_.reset(); }
DecoderModel::DecoderModel(DecoderModel&&) noexcept = default;
DecoderModel& DecoderModel::operator=(DecoderModel&&) noexcept = default;

void DecoderModel::wait() const {
  if (upload_) upload_->wait(progress_);
}

double DecoderModel::upload_ms() const { return upload_ ? upload_->ms() : upload_ms_; }

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
