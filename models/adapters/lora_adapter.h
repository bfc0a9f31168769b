// A LoRA adapter of PEFT, opened and checked against the model that it is for: which matrices it changes, W + s B A,
// and where A and B are. No value of a tensor has been read yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/adapters/adapter_config.h"
#include "models/config/model_config.h"
#include "models/weights/safetensors.h"

namespace nodewright {

// What an adapter does to one matrix W [out, in] of the model.
struct AdapterModule {
  const TensorInfo* a = nullptr;  // [rank, in]
  const TensorInfo* b = nullptr;  // [out, rank]
  int64_t rank = 0;
  double scale = 0;  // of B A
};

// The name of a module or tensor without the prefix that all of the model's have: "layers.0.mlp.up_proj".
std::string_view without_prefix(std::string_view name, const TensorNames& names);

// Values of A or B. Throws Error, naming the tensor, where the file ends early or a value is not
// finite.
std::vector<float> read_floats(const TensorInfo& tensor);

class LoraAdapter {
 public:
  // Opens adapter_config.json and adapter_model.safetensors of the folder, as PEFT writes them. Throws Error, naming
  // file, module or tensor, for what AdapterConfig::read refuses, a rank above `most_rank`, a tensor of another shape
  // than the model's matrices imply, one that belongs to no matrix of a layer (embedding and head included), and a
  // module that the configuration names and that lacks A or B.
  static LoraAdapter open(const std::filesystem::path& folder, const ModelConfig& config, int64_t most_rank);

  // By the matrix's name without prefix; null: the adapter leaves it as it is.
  const AdapterModule* find(std::string_view module) const;
  const std::map<std::string, AdapterModule, std::less<>>& modules() const { return modules_; }
  const std::filesystem::path& folder() const { return folder_; }
  int64_t rank() const { return rank_; }  // the largest of its modules'

 private:
  explicit LoraAdapter(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  std::unique_ptr<CheckedFile> file_;  // at an address that the tensors keep
  std::vector<TensorInfo> tensors_;
  std::map<std::string, AdapterModule, std::less<>> modules_;
  int64_t rank_ = 0;
};

}  // namespace nodewright
