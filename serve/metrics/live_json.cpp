// ServeMetrics::live_json: what the page of the server polls.
#include <nlohmann/json.hpp>

#include "serve/metrics/serve_metrics.h"

namespace nodewright {
namespace {

using LiveJson = nlohmann::ordered_json;

LiveJson json_of_card(const ModelCard& card) {
  return {{"name", card.name},  {"device", card.device},      {"weights", card.weights}, {"numerics", card.numerics},
          {"mode", card.mode},  {"tuning", card.tuning},      {"context", card.context}, {"rows", card.rows},
          {"chat", card.chats}, {"tokenizer", card.tokenizes}};
}

LiveJson json_of_graphs(const EngineStats& stats) {
  LiveJson launches = LiveJson::array(), fallbacks = LiveJson::array();
  for (const auto& [bucket, use] : stats.buckets)
    launches.push_back({{"bucket", bucket.first},
                        {"form", to_string(bucket.second)},
                        {"steps", use.steps},
                        {"rows", use.rows},
                        {"exact", use.exact}});
  for (const auto& [reason, steps] : stats.fallbacks) fallbacks.push_back({{"reason", reason}, {"steps", steps}});
  return {{"padded_rows", stats.padded_rows}, {"launches", std::move(launches)}, {"fallbacks", std::move(fallbacks)}};
}

LiveJson json_of_times(const RecentTimes& times, RecentTimes::Clock::time_point now) {
  const RecentTimes::Quantiles found = times.quantiles(now);
  if (found.count == 0) return {{"count", 0}, {"median_ms", nullptr}, {"p99_ms", nullptr}};
  return {{"count", found.count}, {"median_ms", found.median * 1e3}, {"p99_ms", found.p99 * 1e3}};
}

}  // namespace

std::string ServeMetrics::live_json(std::string_view state) const {
  const std::lock_guard lock(mutex_);
  const auto now = RecentTimes::Clock::now();
  LiveJson live{{"seconds", std::chrono::duration<double>(now - started_).count()},
                {"state", state},
                {"model", card_ ? json_of_card(*card_) : LiveJson()}};
  live["requests"] = {{"running", seen_.running},
                      {"waiting", seen_.waiting},
                      {"preemptions", seen_.preemptions},
                      {"refused", refused_},
                      {"ended", ends_}};
  live["tokens"] = {{"prompt", seen_.stats.prompt_tokens},
                    {"generated", seen_.stats.output_tokens},
                    {"drafted", seen_.stats.drafted},
                    {"accepted_drafts", seen_.stats.accepted_drafts}};
  live["pages"] = {{"all", seen_.pages},
                   {"owned", seen_.owned_pages},
                   {"cached", seen_.cached_pages},
                   {"tokens", seen_.page_tokens}};
  live["prefix_cache"] = {{"asked", seen_.pool.prompt_tokens}, {"found", seen_.pool.found_tokens}};
  live["memory"] = {{"weights", seen_.memory.weights},
                    {"state", seen_.memory.state},
                    {"graphs", seen_.memory.graphs},
                    {"pages", seen_.memory.pages}};
  live["graphs"] = json_of_graphs(seen_.stats);
  live["graphs"]["count"] = seen_.graphs;
  live["graphs"]["build_ms"] = seen_.graph_build_ms;
  live["graphs"]["buckets"] = card_ ? LiveJson(card_->buckets) : LiveJson::array();
  live["recent"] = {{"window_s", RecentTimes::kWindow.count()},
                    {"first_token", json_of_times(recent_first_, now)},
                    {"between_tokens", json_of_times(recent_between_, now)}};
  return live.dump(-1, ' ', false, LiveJson::error_handler_t::replace);
}

}  // namespace nodewright
