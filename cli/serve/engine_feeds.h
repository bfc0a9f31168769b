// What a server's engine tells beside metrics, where the command line asks for it: the timeline of its steps, and KV
// events for routers.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/options/engine_options.h"
#include "cli/serve/serve_timeline.h"
#include "serve/events/kv_event_publisher.h"
#include "serve/metrics/serve_metrics.h"

namespace nodewright::cli {

struct FeedOptions {
  std::filesystem::path timeline;
  std::string kv_endpoint, kv_replay_endpoint, kv_topic;
};

// --timeline, --kv-events-endpoint, --kv-events-replay-endpoint, --kv-events-topic.
void add_feed_options(CLI::App& command, FeedOptions& options);
// Throws Error (usage) for KV events of an engine without a prefix cache, and for their options without an endpoint.
void check(const FeedOptions& options, const EngineSettings& engine);

class EngineFeeds {
 public:
  // Opens the timeline. `options` and `metrics` must outlive this. Throws Error as ServeTimeline does.
  EngineFeeds(const FeedOptions& options, ServeMetrics& metrics);

  // Begins to publish, for a server at `port` with this model. Throws Error as KvEventPublisher does.
  void publish(uint16_t port, const std::string& model);
  // The engine, and the loop around it, will tell this, which must outlive them.
  void listen_to(EngineOptions& engine);
  LoopOptions told_by(LoopOptions loop);
  // Before a process that ends at once.
  void close();

 private:
  const FeedOptions& options_;
  ServeMetrics& metrics_;
  std::optional<ServeTimeline> timeline_;
  std::unique_ptr<KvEventPublisher> events_;
};

}  // namespace nodewright::cli
