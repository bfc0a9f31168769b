// The messages of a request as texts and parts of text, whichever way clients send them.
#pragma once

#include "serve/fields/json_fields.h"

namespace nodewright {

// `messages` in one form: a content is a string, a list of {"type": "text", "text"}, null or absent; refusals are text,
// lists of no calls and other nulls are left out; a call has a function with a name. What a template reads of it is
// shaped_messages()'s to know. Throws std::invalid_argument naming the place, as messages[2].tool_calls[0].function.
RequestJson checked_conversation(const RequestJson& messages);

// Gives calls without an id, and messages of tools without a tool_call_id, one; `messages` are checked. Returns the
// place of the first that lacked it; empty: none did.
std::string add_missing_ids(RequestJson& messages);

}  // namespace nodewright
