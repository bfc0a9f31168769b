// How many connections the process has descriptors for.
#pragma once

#include <cstddef>

#include "serve/http/http_server.h"

namespace nodewright {

// Raises the soft limit of open descriptors to the hard one, but to no more than a million, and returns it.
size_t raise_descriptor_limit();

// That are open now.
size_t open_descriptors_now();

// `limits` with as many connections as `descriptors` leave room for beside the `open` ones and those that an engine
// opens later. At least 4.
HttpLimits fitted(HttpLimits limits, size_t descriptors, size_t open);

}  // namespace nodewright
