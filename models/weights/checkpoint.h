// The tensors of a Hugging Face checkpoint folder by name, whether it holds one safetensors file or several shards; or
// none, and each is drawn.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/formats/encoded_matrix.h"
#include "models/weights/formats/weight_format.h"
#include "models/weights/safetensors.h"

namespace nodewright {

class Checkpoint {
 public:
  // Opens model.safetensors or, without it, every shard that model.safetensors.index.json names, and reads the headers.
  // Throws Error when neither is there, a shard is missing or named with a path, a tensor is in two shards, or the
  // index places a tensor in a shard that lacks it, and where config.json names a format that is not supported.
  static Checkpoint open(const std::filesystem::path& folder);

  // Has every tensor that is asked for, of any shape: loading draws its values (models/weights/drawn_weights.h), the
  // same ones each time; those of a format's FP8 and int4 matrices as such. No file is looked at but config.json.
  static Checkpoint dummy(const std::filesystem::path& folder);

  // Null if the checkpoint stores no such tensor, or draws it.
  const TensorInfo* find(std::string_view name) const;
  // Throws Error, with the expected and the found shape, unless the tensor is there, has `shape`, and can be loaded:
  // BF16, F16 or F32, or a matrix in the checkpoint's format.
  const TensorInfo& require(std::string_view name, const std::vector<int64_t>& shape) const;
  // Whether require() has something under this name, of whatever shape.
  bool has(const std::string& name) const;

  std::span<const TensorInfo> tensors() const { return tensors_; }  // by name
  const std::filesystem::path& folder() const { return folder_; }
  // How its matrices are stored; null: element by element.
  const WeightFormat* format() const { return format_.get(); }

 private:
  struct Encoded {
    TensorInfo tensor;
    std::unique_ptr<EncodedMatrix> matrix;
  };
  const TensorInfo* find_encoded(std::string_view name, const std::vector<int64_t>& shape) const;
  const TensorInfo& draw(const std::string& name, const std::vector<int64_t>& shape) const;
  explicit Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void add(const std::filesystem::path& file);
  void sort();

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<CheckedFile>> files_;  // at addresses that the tensors keep
  std::vector<TensorInfo> tensors_;                  // sorted by name
  std::unique_ptr<WeightFormat> format_;
  mutable std::map<std::string, Encoded, std::less<>> encoded_;  // those that were asked for
  bool draws_ = false;
  mutable std::map<std::string, Encoded, std::less<>> drawn_;  // those that were asked for
};

}  // namespace nodewright
