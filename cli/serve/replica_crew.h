// The engines of a server: each with a device, weights and kernels of its own, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/options/engine_options.h"
#include "cli/serve/engine_feeds.h"
#include "cli/serve/rank_part.h"
#include "cli/session.h"
#include "engine/engine.h"
#include "runtime/device_selection.h"
#include "serve/replicas/replicas.h"

namespace nodewright::cli {

using AllFeeds = std::vector<std::unique_ptr<EngineFeeds>>;  // one for each replica

// What each engine is made of.
struct CrewPlan {
  DeviceChoice devices;  // as many for each replica, one after the other
  SessionOptions session;
  EngineSettings engine;
  EngineNeeds needs;
  bool offers_sleep = false;
  std::optional<RankMeeting> meeting = {};  // of the one replica's ranks, which are in processes of their own
};

class ReplicaCrew {
 public:
  // Opens the driver, and begins to load on all devices at once. The first engine is made before the others, which find
  // its kernels compiled. `replicas` and `feeds` must outlive this. Throws Error as open_driver() does.
  ReplicaCrew(Replicas& replicas, AllFeeds& feeds, CrewPlan plan);
  // Engines that do not serve yet are given up. One that has failed keeps what its driver may not free.
  ~ReplicaCrew();
  ReplicaCrew(const ReplicaCrew&) = delete;
  ReplicaCrew& operator=(const ReplicaCrew&) = delete;

  // Until all engines are made. Throws what the first that cannot be made has thrown.
  void await_engines();
  // Afterwards, and before serve().
  Session& session(size_t replica) { return *members_[replica]->session; }
  Engine& engine(size_t replica) { return *members_[replica]->engine; }
  // Reads an adapter for the engines, while they serve: Engine::read_adapter of one that has not failed.
  std::shared_ptr<const AdapterImage> read_adapter(const std::filesystem::path& folder) const;

  // All engines serve, until they are drained or have failed: then the reasons. A failure is reported on stderr when it
  // happens.
  std::vector<std::string> serve();

 private:
  struct Member {
    std::unique_ptr<RankLink> link;  // null: all ranks are here
    std::unique_ptr<Session> session;
    std::unique_ptr<RankPart> part;  // as link
    std::unique_ptr<Engine> engine;
    std::thread thread;
  };

  void work(size_t replica);
  void make(size_t replica);
  void join_ranks(Member& member, EngineSettings& engine);
  bool await_serving();
  void run(size_t replica);
  void await_last_engine();
  void join();

  Replicas& replicas_;
  AllFeeds& feeds_;
  CrewPlan plan_;
  std::shared_ptr<Driver> driver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t made_ = 0, ended_ = 0;
  bool first_is_made_ = false, serves_ = false, given_up_ = false;
  std::exception_ptr problem_;         // of making the first that cannot be made
  std::vector<std::string> failures_;  // of serving
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace nodewright::cli
