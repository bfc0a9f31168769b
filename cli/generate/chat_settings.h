// What /set changes in a conversation: how tokens are chosen, and how many an answer may have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampling/sampling_options.h"

namespace nodewright::cli {

struct ChatSettings {
  SamplingOptions sampling;
  int64_t max_tokens = 0;
};

std::vector<std::string> chat_setting_names();

// Throws Error (usage) naming an unknown name or a value that cannot be, and leaves `settings` as they are. "default":
// the checkpoint's, or for max_tokens `usual_tokens`.
void set_by_name(ChatSettings& settings, std::string name, const std::string& value, int64_t usual_tokens);

// A line for each: "temperature 0.7", where nothing was set with whose value it is.
std::string settings_words(const ChatSettings& settings, const GenerationDefaults& defaults);

}  // namespace nodewright::cli
