// Base64, as files write bytes that are not text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nodewright {

// The bytes of `text`, which may end in '='; nothing if there is anything else in it. Source: RFC 4648.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace nodewright
