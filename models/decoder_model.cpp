#include "models/decoder_model.h"

#include "models/checkpoint.h"
#include "models/rope_frequencies.h"

namespace nodewright {

DecoderModel DecoderModel::load(Device& device, Stream& stream, const std::filesystem::path& folder,
                                const Progress& progress) {
  ModelConfig config = read_model_config(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  DecoderWeights weights = DecoderWeights::load(device, stream, checkpoint, config, progress);
  const std::vector<float> values = rope_frequencies(config);
  DeviceBuffer frequencies(device, "rope.frequencies", values.size() * sizeof(float));
  write_device(device, frequencies.address(), std::as_bytes(std::span(values)), frequencies.name());
  return {std::move(config), std::move(weights), std::move(frequencies)};
}

}  // namespace nodewright
