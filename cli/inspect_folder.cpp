#include "cli/inspect_folder.h"

#include <functional>
#include <utility>

#include "base/json_file.h"
#include "models/config/generation_config.h"
#include "models/weights/checkpoint.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

constexpr uint64_t kLargestGenerationConfig = 16 << 20;  // bytes, as loading has it

// Calls `look`; what it refuses is an obstacle of `part`.
void look_at(const char* part, InspectedFolder& found, const std::function<void()>& look) {
  try {
    look();
  } catch (const Error& error) {
    found.obstacles.push_back({part, error.what()});
  }
}

bool has_file(const std::filesystem::path& path) {
  std::error_code unused;  // what cannot be looked at is as good as absent
  return std::filesystem::exists(path, unused);
}

// config.json is read first: what is wrong with it hides generation_config.json.
void look_at_configs(const std::filesystem::path& folder, InspectedFolder& found) {
  const std::filesystem::path generation = folder / "generation_config.json";
  try {
    found.config = read_model_config(folder);
    return;
  } catch (const Error& error) {
    const bool is_generation = error.parts().object == generation.string();
    found.obstacles.push_back({is_generation ? "generation_config" : "config", error.what()});
    if (is_generation) return;
  }
  if (has_file(generation))
    look_at("generation_config", found, [&] {
      const auto object = read_json_object(generation, "read the generation defaults", kLargestGenerationConfig);
      read_generation_defaults(object, generation.string());
    });
}

void look_at_weights(const std::filesystem::path& folder, InspectedFolder& found) {
  look_at("weights", found, [&] {
    const Checkpoint checkpoint = Checkpoint::open(folder);
    if (found.config) found.summary = summarize(checkpoint, *found.config);
  });
}

void look_at_text(const std::filesystem::path& folder, InspectedFolder& found) {
  if (has_file(folder / "tokenizer.json"))
    look_at("tokenizer", found, [&] {
      found.tokenizer = outline_tokenizer(folder);
      Tokenizer::from_file(folder / "tokenizer.json");
    });
  look_at("chat_template", found, [&] {
    found.chat_template = chat_template_file(folder);
    if (!found.chat_template.empty()) ChatTemplate::from_folder(folder);
  });
}

}  // namespace

InspectedFolder inspect_folder(const std::filesystem::path& folder) {
  InspectedFolder found;
  look_at_configs(folder, found);
  look_at_weights(folder, found);
  look_at_text(folder, found);
  return found;
}

}  // namespace nodewright::cli
