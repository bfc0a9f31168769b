// A golden checkpoint with something wrong in its config or its weights: what a test of parity must notice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/engine/parity/golden_model.h"
#include "tests/support/scratch_folder.h"

namespace nodewright::test {

// A copy of a golden folder. Throws std::runtime_error where there is nothing to plant in.
class PlantedCheckpoint {
 public:
  explicit PlantedCheckpoint(const std::string& golden) {
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder(golden)))
      if (entry.path().extension() != ".npy") std::filesystem::copy(entry.path(), scratch_.path());
  }

  // For LoadedModel: a path that is not below tests/golden.
  std::string name() const { return scratch_.path().string(); }

  // The base of all rotations, of global layers and of sliding ones.
  void scale_rotation_base(double by) { scale_in_config({"rope_theta", "rope_local_base_freq"}, by); }
  void scale_eps(double by) { scale_in_config({"rms_norm_eps", "layer_norm_epsilon"}, by); }

  // `key`: "sliding_window" or "rope_scaling.factor". Null takes it out.
  void set_in_config(const std::string& key, const nlohmann::json& value) {
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(read_text(config_file()));
    const size_t dot = key.find('.');
    nlohmann::ordered_json& object = dot == std::string::npos ? config : config.at(key.substr(0, dot));
    const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
    if (value.is_null())
      object.erase(name);
    else
      object[name] = value;
    write_text(config_file(), config.dump());
  }

  // The text part of a checkpoint that also sees: all tensors below `prefix`, beside one of a vision tower.
  void put_below_vision(const std::string& prefix) {
    nlohmann::ordered_json text = nlohmann::ordered_json::parse(read_text(config_file()));
    const nlohmann::ordered_json eos = text.at("eos_token_id");
    text.erase("eos_token_id");
    write_text(config_file(), nlohmann::ordered_json{{"architectures", {"Gemma3ForConditionalGeneration"}},
                                                     {"eos_token_id", eos},
                                                     {"text_config", text},
                                                     {"vision_config", {{"hidden_size", 2}}}}
                                  .dump());
    const std::filesystem::path file = scratch_.path() / "model.safetensors";
    const std::string bytes = read_text(file);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    nlohmann::ordered_json renamed;
    uint64_t end = bytes.size() - 8 - header;
    const nlohmann::ordered_json tensors = nlohmann::ordered_json::parse(bytes.substr(8, header));
    for (const auto& [name, about] : tensors.items())
      renamed[name == "__metadata__" ? name : prefix + name.substr(std::string("model.").size())] = about;
    renamed["vision_tower.patch.weight"] = {{"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {end, end + 2}}};
    const std::string text_of_header = renamed.dump();
    const uint64_t length = text_of_header.size();
    std::string whole(8, '\0');
    std::memcpy(whole.data(), &length, sizeof(length));
    write_text(file, whole + text_of_header + bytes.substr(8 + header) + std::string(2, '\0'));
  }

  // The first layer's first two query heads trade places.
  void swap_heads() {
    const ModelConfig config = read_model_config(scratch_.path());
    const int64_t dim = config.head_dim;
    if (!config.names.transposed) {
      edit("layers.0.self_attn.q_proj.weight", [&](char* data, int64_t element) {
        std::swap_ranges(data, data + dim * config.hidden * element, data + dim * config.hidden * element);
      });
      return;
    }
    for (const char* tensor : {"h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"})  // [hidden, 3 hidden], [3 hidden]
      edit(tensor, [&](char* data, int64_t element) {
        const int64_t rows = std::string_view(tensor).ends_with("weight") ? config.hidden : 1;
        for (int64_t row = 0; row < rows; ++row) {
          char* q = data + row * 3 * config.hidden * element;
          std::swap_ranges(q, q + dim * element, q + dim * element);
        }
      });
  }

  // Each position has the learned embedding of the next, the last that of the first.
  void shift_positions() {
    const ModelConfig config = read_model_config(scratch_.path());
    edit("wpe.weight", [&](char* data, int64_t element) {
      const int64_t row = config.hidden * element;
      std::rotate(data, data + row, data + config.max_position * row);
    });
  }

 private:
  std::filesystem::path config_file() const { return scratch_.path() / "config.json"; }

  void scale_in_config(std::initializer_list<const char*> keys, double by) {
    const std::filesystem::path file = config_file();
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(read_text(file));
    size_t found = 0;
    for (nlohmann::ordered_json* object :
         {&config, config.contains("rope_parameters") ? &config["rope_parameters"] : nullptr})
      for (const char* key : keys)
        if (object != nullptr && object->contains(key)) (*object)[key] = by * object->at(key).get<double>(), ++found;
    if (found == 0) throw std::runtime_error(file.string() + " has no " + *keys.begin());
    write_text(file, config.dump());
  }

  // change(data, bytes of an element) of the tensor whose name ends so.
  template <class Change>
  void edit(const std::string& tensor, Change&& change) {
    for (const auto& path : scratch_.files()) {
      if (path.extension() != ".safetensors") continue;
      std::string bytes = read_text(path);
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof(header));
      const nlohmann::json tensors = nlohmann::json::parse(bytes.substr(8, header));
      for (const auto& [name, about] : tensors.items()) {
        if (!name.ends_with(tensor)) continue;
        const nlohmann::json& offset = about.at("data_offsets").at(0);
        change(bytes.data() + 8 + header + offset.template get<uint64_t>(),
               about.at("dtype") == "F32" ? int64_t{4} : int64_t{2});
        write_text(path, bytes);
        return;
      }
    }
    throw std::runtime_error(name() + " has no tensor " + tensor);
  }

  ScratchFolder scratch_;
};

}  // namespace nodewright::test
