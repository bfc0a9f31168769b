// adapter_config.json of a LoRA adapter as PEFT writes it: which modules it changes, by which rank and scale. Looks at
// no tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

// A value, and not thread-safe to change.
class AdapterConfig {
 public:
  // Reads folder/adapter_config.json. Throws Error, naming file, key and value, for what is missing, of the wrong type,
  // out of range or not supported: a peft_type other than LORA, use_dora, a bias, modules_to_save and the like.
  static AdapterConfig read(const std::filesystem::path& folder);

  // Whether the adapter says that it changes this module, which is called as in the model:
  // "model.layers.0.mlp.up_proj".
  bool targets(std::string_view module) const;
  int64_t rank_of(std::string_view module) const;
  // What B A is multiplied by: alpha over the rank or, with use_rslora, over its root.
  double scale_of(std::string_view module) const;
  const std::filesystem::path& path() const { return path_; }  // of the file

 private:
  struct Pattern {
    std::regex name;
    double value = 0;
  };
  double of_pattern(const char* key, const std::vector<Pattern>& patterns, std::string_view module,
                    double otherwise) const;
  bool is_of_layers(std::string_view module) const;

  std::filesystem::path path_;
  int64_t rank_ = 0;
  double alpha_ = 0;
  bool root_ = false, all_linear_ = false;
  std::vector<std::string> targets_, excluded_;
  std::optional<std::regex> target_, excluding_;  // instead of a list
  std::vector<Pattern> ranks_, alphas_;
  std::vector<int64_t> layers_;  // empty: all
  std::optional<std::regex> layer_number_;
};

}  // namespace nodewright
