#include "cli/serve/engine_feeds.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "cli/options/refusals.h"
#include "cli/output/say.h"
#include "models/kv_cache.h"
#include "serve/events/kv_event_frames.h"

namespace nodewright::cli {
namespace {

// As routers expect it, for one replica a host.
std::string usual_topic(uint16_t port, const std::string& model) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("kv@{}:{}@{}", host.data(), port, model);
}

}  // namespace

void add_feed_options(CLI::App& command, FeedOptions& options) {
  command.add_option("--timeline", options.timeline,
                     "file for Perfetto (ui.perfetto.dev): when each step ran, and each output waited and decoded");
  command.add_option("--kv-events-endpoint", options.kv_endpoint,
                     "tells changes of the prefix cache over ZeroMQ, as vLLM does, for routers: tcp://*:5557 listens, "
                     "tcp://HOST:PORT connects");
  command.add_option("--kv-events-replay-endpoint", options.kv_replay_endpoint,
                     "where readers ask for KV events that they missed, tcp://*:5558");
  command.add_option("--kv-events-topic", options.kv_topic, "of KV events (default: kv@HOST:PORT@MODEL)");
}

void check(const FeedOptions& options, const EngineSettings& engine) {
  if (!options.kv_endpoint.empty() && engine.no_prefix_cache)
    refuse_pair("--kv-events-endpoint and --no-prefix-cache", "KV events tell of the prefix cache, and there is none",
                "one of the two");
  if (!options.kv_endpoint.empty()) return;
  if (!options.kv_replay_endpoint.empty())
    refuse_pair("--kv-events-replay-endpoint and --kv-events-endpoint", "the first is there, and not the second",
                "--kv-events-endpoint 'tcp://*:5557' as well");
  if (!options.kv_topic.empty())
    refuse_pair("--kv-events-topic and --kv-events-endpoint", "the first is there, and not the second",
                "--kv-events-endpoint 'tcp://*:5557' as well");
}

std::filesystem::path file_of_replica(const std::filesystem::path& file, size_t replica) {
  return file.empty() || replica == 0 ? file : std::filesystem::path(fmt::format("{}.{}", file.string(), replica));
}

EngineFeeds::EngineFeeds(const FeedOptions& options, Replicas& replicas, size_t replica)
    : options_(options), replicas_(replicas), replica_(replica) {
  if (!options.timeline.empty()) timeline_.emplace(file_of_replica(options.timeline, replica));
}

void EngineFeeds::publish(uint16_t port, const std::string& model) {
  if (options_.kv_endpoint.empty()) return;
  const int rank = static_cast<int>(replica_);
  const std::string topic = options_.kv_topic.empty() ? usual_topic(port, model) : options_.kv_topic;
  events_ = std::make_unique<KvEventPublisher>(
      KvEventOptions{.endpoint = endpoint_of_rank(options_.kv_endpoint, rank),
                     .replay_endpoint = endpoint_of_rank(options_.kv_replay_endpoint, rank),
                     .topic = topic,
                     .page_tokens = kPageTokens,
                     .rank = rank});
  const std::string replays =
      options_.kv_replay_endpoint.empty() ? "" : fmt::format(", again at {}", events_->replay_endpoint());
  say("nodewright: KV events of {} at {}{}\n", topic, events_->endpoint(), replays);
}

void EngineFeeds::listen_to(EngineOptions& engine) {
  engine.stepped = [this](const StepRecord& step) {
    replicas_.metrics(replica_).stepped(step);
    if (timeline_) timeline_->add(step);
  };
  if (events_ || replicas_.count() > 1)
    engine.pages_changed = [this](std::vector<PageEvent> events) { tell(std::move(events)); };
}

void EngineFeeds::tell(std::vector<PageEvent> events) {
  if (replicas_.count() > 1) replicas_.follow(replica_, events);
  if (events_) replicas_.metrics(replica_).published(events_->publish(std::move(events)));
}

void EngineFeeds::ended(const EndedOutput& output) {
  if (timeline_) timeline_->add(output);
}

void EngineFeeds::close() {
  if (timeline_) timeline_->close();
}

}  // namespace nodewright::cli
