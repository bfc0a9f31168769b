// Which requests may be a browser's on behalf of a page that must not call: a server on the loopback interface is
// within reach of every page that its user opens. No sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_server.h"

namespace nodewright {

struct BrowserRules {
  // Names that the header Host may have beside addresses, names without a dot, and those below localhost: a public name
  // that is none of these may have been pointed at this server by the page's owner (DNS rebinding). One that begins
  // with a dot stands for all names below it, * for all names.
  std::vector<std::string> hosts;
  std::optional<std::string> origin;  // HttpOptions::cors_origin
};

// Why the request is refused, as a sentence that says what would allow it; empty: it is not. `is_page`: its path is one
// that a link on another site may open.
std::string why_foreign(const BrowserRules& rules, const HttpRequest& head, bool is_page);

// "localhost" of "localhost:8000", "::1" of "[::1]:8000".
std::string_view host_name(std::string_view host);

// Whether a body of this Content-Type is JSON: application/json, or a type that ends with +json.
bool is_json_type(std::string_view content_type);

}  // namespace nodewright
