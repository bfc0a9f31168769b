// How a checkpoint stores its matrices, where that is not element by element: one class a format, in the .cpp files
// beside this one. A format is found by what config.json declares.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/formats/encoded_matrix.h"

namespace nodewright {

class Checkpoint;
class ConfigFields;

// Immutable; any thread may ask.
class WeightFormat {
 public:
  virtual ~WeightFormat() = default;
  WeightFormat(const WeightFormat&) = delete;
  WeightFormat& operator=(const WeightFormat&) = delete;

  // The matrix [outputs, inputs] that the network calls `name`: "model.layers.0.mlp.up_proj.weight". Null: it is stored
  // under this name, element by element. Throws Error, naming the tensor, where a stored tensor is missing or has
  // another dtype or shape than the format asks for. No weights are read.
  virtual std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                                const Checkpoint& checkpoint) const = 0;

  // Whether there is such a matrix under names of the format's own; its shape is not looked at.
  virtual bool stores(const std::string& name, const Checkpoint& checkpoint) const = 0;

  // A matrix of this name and shape whose values are drawn, where the format has it in FP8 or int4; else null.
  virtual std::unique_ptr<EncodedMatrix> drawn(const std::string& name, const std::vector<int64_t>& shape) const;

  // Whether a tensor belongs to the format, and not to weights: scales of activations or of the cache.
  virtual bool is_spare(const TensorInfo& tensor, const Checkpoint& checkpoint) const;

  // "fp8, blocks of 128 x 128"; for people.
  const std::string& words() const { return words_; }
  void add_words(std::string_view more) { words_ += more; }

  // "quantization_config.kv_cache_scheme, int of 8 bits by tensor": what the checkpoint quantizes its cache to where
  // that is not FP8 with a scale for each layer; for people. Empty: it does not.
  const std::string& other_cache() const { return other_cache_; }
  void set_other_cache(std::string scheme) { other_cache_ = std::move(scheme); }

 protected:
  explicit WeightFormat(std::string words) : words_(std::move(words)) {}

 private:
  std::string words_, other_cache_;
};

// The format that folder/config.json declares under quantization_config or compression_config, also of its text_config,
// or that folder/hf_quant_config.json does. Null where none does, and without config.json. Throws Error, naming the
// file and the key, for a format that is not supported, for parameters that it cannot have, and for the files in which
// older versions of AutoGPTQ and AutoAWQ declared theirs.
std::unique_ptr<WeightFormat> weight_format_of(const std::filesystem::path& folder);

// One for each quant_method, from that object.
std::unique_ptr<WeightFormat> read_fp8_format(const ConfigFields& fields);  // fp8_format.cpp
std::unique_ptr<WeightFormat> read_compressed_tensors_format(
    const ConfigFields& fields);                                                     // compressed_tensors_format.cpp
std::unique_ptr<WeightFormat> read_gptq_format(const ConfigFields& fields);          // gptq_format.cpp
std::unique_ptr<WeightFormat> read_awq_format(const ConfigFields& fields);           // awq_format.cpp
std::unique_ptr<WeightFormat> read_modelopt_format(const ConfigFields& fields);      // modelopt_format.cpp
std::unique_ptr<WeightFormat> read_auto_round_format(const ConfigFields& fields);    // auto_round_format.cpp
std::unique_ptr<WeightFormat> read_bitsandbytes_format(const ConfigFields& fields);  // bitsandbytes_format.cpp
std::unique_ptr<WeightFormat> read_mxfp4_format(const ConfigFields& fields);         // mxfp4_format.cpp

}  // namespace nodewright
