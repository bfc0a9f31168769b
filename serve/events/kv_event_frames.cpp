#include "serve/events/kv_event_frames.h"

#include <fmt/format.h>

#include <charconv>
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

std::string kv_event_payload(double seconds, std::span<const PageEvent> events, int64_t page_tokens, int rank) {
  nlohmann::json all = nlohmann::json::array();
  for (const PageEvent& event : events) all.push_back(event_array(event, page_tokens));
  std::string payload;
  nlohmann::json::to_msgpack(nlohmann::json::array({seconds, std::move(all), rank}), payload);
  return payload;
}

std::string endpoint_of_rank(const std::string& endpoint, int rank) {
  if (rank == 0 || endpoint.empty()) return endpoint;
  int port = 0;
  const size_t colon = endpoint.rfind(':') + 1;
  const auto [end, failed] = std::from_chars(endpoint.data() + colon, endpoint.data() + endpoint.size(), port);
  const bool has_port = failed == std::errc() && end == endpoint.data() + endpoint.size();
  if (endpoint.starts_with("tcp://"))
    return has_port ? fmt::format("{}{}", endpoint.substr(0, colon), port + rank) : endpoint;
  return fmt::format("{}_dp{}", endpoint, rank);
}

std::string sequence_frame(uint64_t sequence) {
  std::string frame(8, '\0');
  for (auto byte = frame.rbegin(); byte != frame.rend(); ++byte, sequence >>= 8)
    *byte = static_cast<char>(sequence & 0xff);
  return frame;
}

}  // namespace nodewright
