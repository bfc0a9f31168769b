#include "cli/inspect_folder.h"

#include <exception>
#include <utility>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "models/weights/checkpoint.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

// Calls `look`; what it refuses is an obstacle of `part`.
void look_at(const char* part, InspectedFolder& found, const std::function<void()>& look) {
  try {
    look();
  } catch (const std::exception& error) {
    found.obstacles.push_back({part, error.what()});
  }
}

void look_at_configs(const std::filesystem::path& folder, InspectedFolder& found) {
  const std::string generation = (folder / "generation_config.json").string();
  for (const Error& fault : model_config_faults(folder))
    found.obstacles.push_back({fault.parts().object == generation ? "generation_config" : "config", fault.what()});
  if (found.obstacles.empty()) found.config = read_model_config(folder);
}

void look_at_weights(const std::filesystem::path& folder, LayerMatrices matrices, InspectedFolder& found) {
  look_at("weights", found, [&] {
    const Checkpoint checkpoint = Checkpoint::open(folder);
    if (found.config) found.summary = summarize(checkpoint, *found.config, matrices);
  });
}

void look_at_text(const std::filesystem::path& folder, InspectedFolder& found) {
  if (is_gguf(folder) || is_present(folder / "tokenizer.json"))
    look_at("tokenizer", found, [&] {
      found.tokenizer = outline_tokenizer(folder);
      Tokenizer::from_folder(folder);
    });
  look_at("chat_template", found, [&] {
    found.chat_template = chat_template_file(folder);
    if (!found.chat_template.empty()) ChatTemplate::from_folder(folder);
  });
}

}  // namespace

InspectedFolder inspect_folder(const std::filesystem::path& folder, LayerMatrices matrices,
                               const std::function<void(ModelConfig&)>& asked) {
  InspectedFolder found;
  look_at_configs(folder, found);
  if (found.config) asked(*found.config);
  look_at_weights(folder, matrices, found);
  look_at_text(folder, found);
  return found;
}

}  // namespace nodewright::cli
