// The messages of a request as chat templates want them.
#pragma once

#include <string>

#include "serve/fields/json_fields.h"

namespace nodewright {

// `messages` with texts for contents, those of several parts joined by line ends, and JSON for the arguments of earlier
// calls of tools, which clients send as text. A role "developer" becomes "system", its older name, unless
// `template_source` knows it. Throws std::invalid_argument that begins with "messages".
RequestJson checked_conversation(const RequestJson& messages, const std::string& template_source);

}  // namespace nodewright
