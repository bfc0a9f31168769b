// JSON and server-sent events written straight into text: a token's event must not cost a tree of values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nodewright {

// Appends `text` in quotes. Invalid UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// Appends [1,2,3].
void append_json_ids(std::string& out, std::span<const int32_t> ids);
// Appends a log probability: none below -9999, as in vLLM, because JSON has no infinity; null for what is no number.
void append_json_logprob(std::string& out, float logprob);

// Appends the event whose data is `json`, one line.
void append_event(std::string& out, std::string_view json);

// The last event of every stream.
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// Characters of valid UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace nodewright
