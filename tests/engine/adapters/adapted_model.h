// A golden LoRA adapter beside its golden model (tests/reference/make_adapter_goldens.py).
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/adapters/adapter_slots.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

inline constexpr int64_t kGoldenRank = 8;  // of the largest of them

inline std::filesystem::path adapter_folder(const std::string& adapter) { return golden_folder("adapters/" + adapter); }

// The golden model that an adapter is of.
inline std::string base_of(const std::string& adapter) {
  std::ifstream file(adapter_folder(adapter) / "cases.json");
  return nlohmann::json::parse(file).at("base").get<std::string>();
}

inline AdapterImage image_of(LoadedModel& loaded, const std::filesystem::path& folder, const AdapterLayout& layout) {
  const LoraAdapter adapter = LoraAdapter::open(folder, loaded.model.config(), layout.limits().rank);
  return AdapterImage(loaded.device, adapter, loaded.model.config(), layout);
}

// Fills a slot of the decoder, and waits for it.
inline void load_adapter(Decoder& decoder, LoadedModel& loaded, int32_t slot, const std::filesystem::path& folder) {
  const AdapterImage image = image_of(loaded, folder, decoder.device().adapters()->layout());
  decoder.device().adapters()->upload(loaded.stream, slot, image);
  loaded.stream.synchronize();
}

// As forced_logits, of a sequence with the adapter in that slot.
inline std::vector<Logits> adapted_logits(Decoder& decoder, const LoadedModel& loaded, int32_t slot,
                                          const Tokens& prompt, const Tokens& continuation) {
  const int32_t sequence = decoder.open(slot);
  decoder.append(sequence, std::span(prompt).first(prompt.size() - 1));
  Tokens forced{prompt.back()};
  forced.insert(forced.end(), continuation.begin(), continuation.end());
  std::vector<Logits> rows;
  for (const int32_t token : forced) {
    decoder.step({{.sequence = sequence, .token = token}});
    rows.push_back(logits_of(decoder, loaded));
  }
  decoder.close(sequence);
  return rows;
}

}  // namespace nodewright::test
