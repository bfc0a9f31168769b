// Changes of the page cache in the frames of vLLM's KV events (vllm/distributed/kv_events.py), as its subscribers and
// the indexers of routers read them. Knows no socket.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/cache/page_events.h"

namespace nodewright {

// The third frame: msgpack of [time, [event, ...], rank], the time in seconds since 1970, the rank of data
// parallelism: the replica's number. An event is an array, the form that vLLM had up to 0.23 and that readers of later
// releases take, too:
//   ["BlockStored", [hash, ...], parent or nil, [token, ...], page_tokens, nil, "GPU", nil]
//   ["BlockRemoved", [hash, ...], "GPU"]
//   ["AllBlocksCleared"]
// A hash is an unsigned integer of 64 bits; nil stands for a LoRA adapter's number and name.
std::string kv_event_payload(double seconds, std::span<const PageEvent> events, int64_t page_tokens, int rank = 0);

// Where a rank of data parallelism publishes, by vLLM's rule: at its rank after the port of a tcp:// endpoint, which
// keeps a port of *; elsewhere with _dp and its rank after the name. Rank 0 keeps the endpoint.
std::string endpoint_of_rank(const std::string& endpoint, int rank);

// The second frame, a number as 8 bytes, the highest first.
std::string sequence_frame(uint64_t sequence);

}  // namespace nodewright
