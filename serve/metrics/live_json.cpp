// ServeMetrics::live_json: what the page of the server polls.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "serve/metrics/serve_metrics.h"

namespace nodewright {
namespace {

using LiveJson = nlohmann::ordered_json;

// The fields of a call that says nothing. Seven digits: a float of 0.8 is shown as 0.8.
LiveJson json_of_defaults(const Sampling& sampling) {
  const auto decimal = [](float value) { return std::stod(fmt::format("{:.7g}", value)); };
  return {{"temperature", decimal(sampling.temperature)},
          {"top_p", decimal(sampling.top_p)},
          {"top_k", sampling.top_k},
          {"min_p", decimal(sampling.min_p)},
          {"seed", sampling.seed ? LiveJson(*sampling.seed) : LiveJson()}};
}

LiveJson json_of_card(const ModelCard& card) {
  return {{"name", card.name},
          {"device", card.device},
          {"weights", card.weights},
          {"numerics", card.numerics},
          {"mode", card.mode},
          {"tuning", card.tuning},
          {"context", card.context},
          {"rows", card.rows},
          {"chat", card.chats},
          {"tokenizer", card.tokenizes},
          {"defaults", json_of_defaults(card.sampling)}};
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

ServeMetrics::Snapshot ServeMetrics::snapshot() const {
  const std::lock_guard lock(mutex_);  // the engine's thread waits for it: what takes time is done with copies
  Snapshot now{.card = card_,
               .seen = seen_,
               .ends = ends_,
               .refused = refused_,
               .first = recent_first_,
               .between = recent_between_};
  now.seen.waiting += before_all_.value_or(0);
  return now;
}

// Adds the figures that live_json() shows.
void ServeMetrics::Snapshot::add(const Snapshot& other) {
  for (const auto& [word, count] : other.ends) ends[word] += count;
  refused += other.refused;
  first.add(other.first);
  between.add(other.between);
  EngineStats& stats = seen.stats;
  for (const auto& [bucket, use] : other.seen.stats.buckets) {
    stats.buckets[bucket].steps += use.steps;
    stats.buckets[bucket].rows += use.rows;
    stats.buckets[bucket].exact += use.exact;
  }
  for (const auto& [reason, steps] : other.seen.stats.fallbacks) stats.fallbacks[reason] += steps;
  for (int64_t EngineStats::*field : {&EngineStats::prompt_tokens, &EngineStats::output_tokens, &EngineStats::drafted,
                                      &EngineStats::accepted_drafts, &EngineStats::padded_rows})
    stats.*field += other.seen.stats.*field;
  seen.pool.prompt_tokens += other.seen.pool.prompt_tokens;
  seen.pool.found_tokens += other.seen.pool.found_tokens;
  for (int64_t Seen::*field : {&Seen::running, &Seen::waiting, &Seen::preemptions, &Seen::pages, &Seen::owned_pages,
                               &Seen::cached_pages, &Seen::graphs})
    seen.*field += other.seen.*field;
  for (auto field : {&MemoryUse::weights, &MemoryUse::state, &MemoryUse::graphs, &MemoryUse::pages})
    seen.memory.*field += other.seen.memory.*field;
}

std::string ServeMetrics::live_json(std::string_view state, std::span<const ServeMetrics* const> engines,
                                    const std::string& replicas) {
  Snapshot all = engines.front()->snapshot();
  for (const ServeMetrics* other : engines.subspan(1)) all.add(other->snapshot());
  const Seen& seen = all.seen;
  const auto now = RecentTimes::Clock::now();
  LiveJson live{{"seconds", std::chrono::duration<double>(now - engines.front()->started_).count()},
                {"state", state},
                {"model", all.card ? json_of_card(*all.card) : LiveJson()}};
  live["requests"] = {{"running", seen.running},
                      {"waiting", seen.waiting},
                      {"preemptions", seen.preemptions},
                      {"refused", all.refused},
                      {"ended", all.ends}};
  live["tokens"] = {{"prompt", seen.stats.prompt_tokens},
                    {"generated", seen.stats.output_tokens},
                    {"drafted", seen.stats.drafted},
                    {"accepted_drafts", seen.stats.accepted_drafts}};
  live["pages"] = {
      {"all", seen.pages}, {"owned", seen.owned_pages}, {"cached", seen.cached_pages}, {"tokens", seen.page_tokens}};
  live["prefix_cache"] = {{"asked", seen.pool.prompt_tokens}, {"found", seen.pool.found_tokens}};
  live["memory"] = {{"weights", seen.memory.weights},
                    {"state", seen.memory.state},
                    {"graphs", seen.memory.graphs},
                    {"pages", seen.memory.pages}};
  live["graphs"] = json_of_graphs(seen.stats);
  live["graphs"]["count"] = seen.graphs;
  live["graphs"]["build_ms"] = seen.graph_build_ms;
  live["graphs"]["buckets"] = all.card ? LiveJson(all.card->buckets) : LiveJson::array();
  live["recent"] = {{"window_s", RecentTimes::kWindow.count()},
                    {"first_token", json_of_times(all.first, now)},
                    {"between_tokens", json_of_times(all.between, now)}};
  if (!replicas.empty()) live["replicas"] = LiveJson::parse(replicas);
  return live.dump(-1, ' ', false, LiveJson::error_handler_t::replace);
}

}  // namespace nodewright
