// Earlier calls of tools in the messages of a request, as chat templates want them.
#pragma once

#include "serve/fields/json_fields.h"

namespace nodewright {

// Clients send the arguments of `calls`, the "tool_calls" of a message, as text; templates print them as JSON. Throws
// std::invalid_argument that begins with "messages" where they are no calls, or arguments are no JSON object.
void open_arguments(RequestJson& calls);

}  // namespace nodewright
