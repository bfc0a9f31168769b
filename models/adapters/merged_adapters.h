// LoRA adapters that become part of a model's weights while these are loaded: W + s B A, summed in fp32 and rounded
// once, which costs nothing later.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/weight_delta.h"
#include "models/weights/weight_upload.h"

namespace nodewright {

// Immutable; any thread may look.
class MergedAdapters {
 public:
  // Reads the folders (PEFT's), of any rank. Throws Error as LoraAdapter::open, and where a file ends early or a value
  // is not finite.
  MergedAdapters(std::span<const std::filesystem::path> folders, const ModelConfig& config);

  // Each source's parts get what is added to their tensors. This must outlive the upload of them.
  void attach(std::span<WeightSource> sources) const;

 private:
  TensorNames names_;
  std::map<std::string, std::vector<WeightDelta>, std::less<>> deltas_;  // by module, without prefix
};

}  // namespace nodewright
