// Changes of the page cache in the frames of vLLM's KV events (vllm/distributed/kv_events.py), as its subscribers and
// the indexers of routers read them. Knows no socket.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/cache/page_events.h"

namespace nodewright {

// The third frame: msgpack of [time, [event, ...], 0], the time in seconds since 1970, the 0 a rank of data
// parallelism. An event is an array, the form that vLLM had up to 0.23 and that readers of later releases take, too:
//   ["BlockStored", [hash, ...], parent or nil, [token, ...], page_tokens, nil, "GPU", nil]
//   ["BlockRemoved", [hash, ...], "GPU"]
//   ["AllBlocksCleared"]
// A hash is an unsigned integer of 64 bits; nil stands for a LoRA adapter's number and name.
std::string kv_event_payload(double seconds, std::span<const PageEvent> events, int64_t page_tokens);

// The second frame, a number as 8 bytes, the highest first.
std::string sequence_frame(uint64_t sequence);

}  // namespace nodewright
