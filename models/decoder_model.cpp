#include "models/decoder_model.h"

#include "models/checkpoint.h"
#include "models/rope_frequencies.h"

namespace nodewright {

DecoderModel DecoderModel::load(Device& device, Stream& stream, const std::filesystem::path& folder,
                                const Progress& progress) {
  ModelConfig config = read_model_config(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  DecoderWeights weights = DecoderWeights::load(device, stream, checkpoint, config, progress);
  DecoderModel model(std::move(config), std::move(weights));
  const auto add_frequencies = [&](const char* name, const RopeConfig& rope) {
    const std::vector<float> values = rope_frequencies(rope, model.config_.head_dim);
    const DeviceBuffer& buffer = model.frequencies_.emplace_back(device, name, values.size() * sizeof(float));
    write_device(device, buffer.address(), std::as_bytes(std::span(values)), buffer.name());
  };
  if (!model.config_.learned_positions) add_frequencies("rope.frequencies", model.config_.rope);
  if (model.config_.local_rope) add_frequencies("rope.local_frequencies", *model.config_.local_rope);
  return model;
}

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
