// What one engine of a server tells: metrics and, where the command line asks for it, the timeline of its steps and KV
// events for routers; of several replicas also which prompts it has cached.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/engine_options.h"
#include "cli/serve/serve_timeline.h"
#include "serve/events/kv_event_publisher.h"
#include "serve/replicas/replicas.h"

namespace nodewright::cli {

struct FeedOptions {
  std::filesystem::path timeline;
  std::string kv_endpoint, kv_replay_endpoint, kv_topic;
};

// --timeline, --kv-events-endpoint, --kv-events-replay-endpoint, --kv-events-topic.
void add_feed_options(CLI::App& command, FeedOptions& options);
// Throws Error (usage) for KV events of an engine without a prefix cache, and for their options without an endpoint.
void check(const FeedOptions& options, const EngineSettings& engine);

// The file of a replica where one is named for all: the first has it, replica 1 has FILE.1. An empty one stays empty.
std::filesystem::path file_of_replica(const std::filesystem::path& file, size_t replica);

class EngineFeeds {
 public:
  // Opens the timeline. `options` and `replicas` must outlive this. Throws Error as ServeTimeline does.
  EngineFeeds(const FeedOptions& options, Replicas& replicas, size_t replica);

  // Begins to publish, for a server at `port` with this model. Throws Error as KvEventPublisher does.
  void publish(uint16_t port, const std::string& model);
  // The engine will tell this, which must outlive it.
  void listen_to(EngineOptions& engine);
  // So does the loop around it; on the engine's thread.
  void ended(const EndedOutput& output);
  // Before a process that ends at once.
  void close();

 private:
  void tell(std::vector<PageEvent> events);

  const FeedOptions& options_;
  Replicas& replicas_;
  size_t replica_;
  std::optional<ServeTimeline> timeline_;
  std::unique_ptr<KvEventPublisher> events_;
};

}  // namespace nodewright::cli
