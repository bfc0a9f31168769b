#include "serve/sleep_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "serve/http/messages/query_fields.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse(const char* name, std::string_view value, const char* expected) {
  throw ApiError(400, fmt::format("{} is {}, expected {}", name, value.empty() ? "empty" : value, expected), name);
}

}  // namespace

SleepOrder asked_sleep(std::string_view query) {
  SleepOrder order;
  for (const std::string_view level : query_values(query, "level")) {
    if (level != "1" && level != "2") refuse("level", level, "1 (weights stay in host memory) or 2 (they are dropped)");
    order.level = level == "1" ? SleepLevel::weights_on_host : SleepLevel::weights_dropped;
  }
  for (const std::string_view mode : query_values(query, "mode")) {
    if (mode != "wait" && mode != "abort") refuse("mode", mode, "wait (open requests end first) or abort");
    order.aborts = mode == "abort";
  }
  return order;
}

SleepOrder asked_wake(std::string_view query) {
  const std::vector<std::string_view> tags = query_values(query, "tags");
  for (const std::string_view tag : tags)
    if (tag != "weights" && tag != "kv_cache") refuse("tags", tag, "weights or kv_cache, or no tags for all");
  const bool weights_alone = !tags.empty() && std::ranges::count(tags, "weights") == std::ssize(tags);
  return {.kind = weights_alone ? SleepOrder::Kind::wake_weights : SleepOrder::Kind::wake};
}

std::string sleep_body(const SleepOutcome& outcome) {
  const SleepChange& change = outcome.change;
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (const SleepChange::Part& part : change.parts) parts[part.name] = part.seconds;
  return nlohmann::ordered_json{
      {"is_sleeping", outcome.level != SleepLevel::awake},
      {"level", static_cast<int>(outcome.level)},
      {"free_bytes", {{"before", change.free_before}, {"after", change.free_after}}},
      {"freed_bytes", static_cast<int64_t>(change.free_after) - static_cast<int64_t>(change.free_before)},
      {"seconds", change.seconds},
      {"seconds_of", std::move(parts)}}
      .dump();
}

ApiError sleep_error(const SleepOutcome& outcome, const ApiError& now) {
  if (outcome.end == SleepEnd::called_off) return {409, "POST /wake_up came before all open requests had ended"};
  if (outcome.end == SleepEnd::failed) return {500, outcome.problem};
  return now;
}

std::string is_sleeping_body(SleepLevel level) {
  return nlohmann::json{{"is_sleeping", level != SleepLevel::awake}}.dump();
}

}  // namespace nodewright
