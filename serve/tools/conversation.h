// The messages of a request as texts and parts of text, whichever way clients send them.
#pragma once

#include "serve/fields/json_fields.h"

namespace nodewright {

// `messages` in one form: a content is a string, a list of {"type": "text", "text"}, null or absent; refusals are text,
// lists of no calls and other nulls are left out. What a template reads of it is shaped_messages()'s to know. Throws
// std::invalid_argument that begins with "messages".
RequestJson checked_conversation(const RequestJson& messages);

}  // namespace nodewright
