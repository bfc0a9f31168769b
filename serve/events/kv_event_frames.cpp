#include "serve/events/kv_event_frames.h"

#include <nlohmann/json.hpp>

namespace nodewright {
namespace {

constexpr const char* kMedium = "GPU";  // where pages are; also the CPU driver's, which readers know no word for

nlohmann::json event_array(const PageEvent& event, int64_t page_tokens) {
  nlohmann::json parent;
  if (event.parent) parent = *event.parent;
  nlohmann::json adapter;  // vLLM's lora_id
  if (event.adapter != 0) adapter = event.adapter;
  switch (event.kind) {
    case PageEvent::Kind::stored:
      return nlohmann::json::array(
          {"BlockStored", event.pages, parent, event.tokens, page_tokens, adapter, kMedium, nullptr});
    case PageEvent::Kind::removed:
      return nlohmann::json::array({"BlockRemoved", event.pages, kMedium});
    case PageEvent::Kind::cleared:
      break;
  }
  return nlohmann::json::array({"AllBlocksCleared"});
}

}  // namespace

std::string kv_event_payload(double seconds, std::span<const PageEvent> events, int64_t page_tokens) {
  nlohmann::json all = nlohmann::json::array();
  for (const PageEvent& event : events) all.push_back(event_array(event, page_tokens));
  std::string payload;
  nlohmann::json::to_msgpack(nlohmann::json::array({seconds, std::move(all), 0}), payload);
  return payload;
}

std::string sequence_frame(uint64_t sequence) {
  std::string frame(8, '\0');
  for (auto byte = frame.rbegin(); byte != frame.rend(); ++byte, sequence >>= 8)
    *byte = static_cast<char>(sequence & 0xff);
  return frame;
}

}  // namespace nodewright
