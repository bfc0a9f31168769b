// A LoRA adapter of random values for every matrix of a model's layers, written as PEFT writes it: for networks that no
// golden has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "models/adapters/adapter_layout.h"
#include "models/weights/weights.h"

namespace nodewright::test {

// Writes an adapter of `rank` everywhere. `size`: the largest value of A and B.
inline void write_adapter(const std::filesystem::path& folder, const ModelConfig& config, int64_t rank, uint64_t seed,
                          float size = 0.1f) {
  nlohmann::json header;
  std::vector<float> values;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> drawn(-size, size);
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
    const size_t begin = values.size() * sizeof(float);
    for (int64_t i = 0; i < rows * cols; ++i) values.push_back(drawn(random));
    header[name] = {
        {"dtype", "F32"}, {"shape", {rows, cols}}, {"data_offsets", {begin, values.size() * sizeof(float)}}};
  };
  const Checkpoint any = Checkpoint::dummy("");
  for (const WeightSource& source : weight_sources(any, config))
    for (const Part part : kAdaptedParts) {
      if (!source.name.ends_with("." + weight_name(config, part))) continue;
      for (const WeightPart& piece : source.parts) {
        std::string module = "base_model.model." + piece.tensor->name;
        module.resize(module.size() - std::string_view(".weight").size());
        if (header.contains(module + ".lora_A.weight")) continue;
        const std::vector<int64_t>& shape = piece.tensor->shape;
        add(module + ".lora_A.weight", rank, shape[piece.transposed ? 0 : 1]);
        add(module + ".lora_B.weight", shape[piece.transposed ? 1 : 0], rank);
      }
    }
  const std::string text = header.dump();
  const uint64_t bytes = text.size();
  std::ofstream file(folder / "adapter_model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  file << text;
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  std::ofstream(folder / "adapter_config.json") << nlohmann::json{
      {"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", 2 * rank}, {"target_modules", "all-linear"}, {"bias", "none"}};
}

}  // namespace nodewright::test
