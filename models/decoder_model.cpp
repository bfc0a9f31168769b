#include "models/decoder_model.h"

#include <chrono>
#include <utility>

#include "models/config/rope_frequencies.h"
#include "models/weights/background_upload.h"
#include "models/weights/checkpoint.h"

namespace nodewright {

DecoderModel::DecoderModel(Device& device, ModelConfig config, DecoderWeights weights)
    : config_(std::move(config)), weights_(std::move(weights)) {
  const auto add_frequencies = [&](const char* name, const RopeConfig& rope) {
    const std::vector<float> values = rope_frequencies(rope, config_.head_dim);
    const DeviceBuffer& buffer = frequencies_.emplace_back(device, name, values.size() * sizeof(float));
    write_device(device, buffer.address(), std::as_bytes(std::span(values)), buffer.name());
  };
  if (!config_.learned_positions) add_frequencies("rope.frequencies", config_.rope);
  if (config_.local_rope) add_frequencies("rope.local_frequencies", *config_.local_rope);
}

DecoderModel DecoderModel::load(Device& device, Stream& stream, const std::filesystem::path& folder,
                                const Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  ModelConfig config = read_model_config(folder);
  DecoderWeights weights = DecoderWeights::load(device, stream, Checkpoint::open(folder), config, progress);
  DecoderModel model(device, std::move(config), std::move(weights));
  model.upload_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return model;
}

DecoderModel DecoderModel::begin_load(Device& device, const std::filesystem::path& folder, const Progress& progress) {
  ModelConfig config = read_model_config(folder);
  Checkpoint checkpoint = Checkpoint::open(folder);
  DecoderWeights::Places placed = DecoderWeights::place(device, checkpoint, config);
  DecoderModel model(device, std::move(config), std::move(placed.weights));
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
  if (frequencies_.empty()) return {};
  const bool local = config_.local_rope && config_.is_sliding(layer);
  return weight_of<float>(local ? frequencies_.back() : frequencies_.front());
}

std::vector<NamedRange> DecoderModel::frequencies_ranges() const {
  std::vector<NamedRange> ranges;
  for (const DeviceBuffer& b : frequencies_) ranges.push_back({b.name(), b.address(), b.bytes(), "weight"});
  return ranges;
}

}  // namespace nodewright
