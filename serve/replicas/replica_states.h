// What /health and /live tell of replicas, as JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "serve/replicas/replicas.h"

namespace nodewright {

// "ready", "full", "loading", "asleep", "draining" or "failed".
std::string_view word_of(Admission admission);

// {"replicas": [{"engine", "state", "reason"}]}: "reason" is there where it has failed.
std::string health_body(std::span<const ReplicaState> states);

// ServeMetrics::live_json of all replicas; of several with "replicas": [{"engine", "state", "open", "tokens",
// "reason"}], the tokens being those before it.
std::string live_body(Replicas& replicas);

}  // namespace nodewright
