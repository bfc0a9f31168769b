#include "cli/serve/replica_crew.h"

#include <fmt/format.h>
#include <pthread.h>

#include <utility>

#include "cli/output/say.h"
#include "runtime/error.h"
#include "runtime/memory/host_heap.h"

namespace nodewright::cli {
namespace {

std::string words_of(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "it has failed";
  }
}

}  // namespace

ReplicaCrew::ReplicaCrew(Replicas& replicas, AllFeeds& feeds, CrewPlan plan)
    : replicas_(replicas), feeds_(feeds), plan_(std::move(plan)), driver_(open_driver(plan_.devices.driver)) {
  if (!driver_->is_cpu()) fill_huge_heap();  // the CPU driver keeps no graphs of its own
  for (size_t i = 0; i < replicas_.count(); ++i) members_.push_back(std::make_unique<Member>());
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i]->thread = std::thread([this, i] { work(i); });
    pthread_setname_np(members_[i]->thread.native_handle(), fmt::format("engine-{}", i).c_str());
  }
}

ReplicaCrew::~ReplicaCrew() {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
  join();
}

void ReplicaCrew::join() {
  for (const auto& member : members_)
    if (member->thread.joinable()) member->thread.join();
}

void ReplicaCrew::await_engines() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return problem_ || made_ == members_.size(); });
  if (problem_) std::rethrow_exception(problem_);
}

std::shared_ptr<const AdapterImage> ReplicaCrew::read_adapter(const std::filesystem::path& folder) const {
  size_t replica = 0;
  const std::vector<ReplicaState> states = replicas_.states();
  while (replica + 1 < states.size() && states[replica].admission == Admission::failed) ++replica;
  return members_[replica]->engine->read_adapter(folder);
}

std::vector<std::string> ReplicaCrew::serve() {
  {
    const std::lock_guard lock(mutex_);
    serves_ = true;
  }
  changed_.notify_all();
  join();
  return failures_;
}

// A device is closed by the thread that has opened it.
void ReplicaCrew::work(size_t replica) {
  Member& member = *members_[replica];
  try {
    make(replica);
  } catch (...) {
    if (member.link) member.link->leave(words_of(std::current_exception()));
    {
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::current_exception();
      first_is_made_ = true;  // or never will be
    }
    changed_.notify_all();
  }
  if (await_serving()) run(replica);
  member.engine.reset();
  await_last_engine();
  member.part.reset();
  member.session.reset();
  member.link.reset();
}

// Rank 0 of several processes: the others are there, and have the same options.
void ReplicaCrew::join_ranks(Member& member, EngineSettings& engine) {
  member.part = std::make_unique<RankPart>(*member.link, *member.session);
  member.part->agree(engine_options(engine, plan_.session, *member.session, plan_.needs), plan_.session);
  member.part->lead(engine.engine);
  member.link->when_lost([this](const std::string& reason) { replicas_.fail(0, reason); });
}

// An adapter's image is page-locked by one device, and all engines may hold it.
void ReplicaCrew::await_last_engine() {
  std::unique_lock lock(mutex_);
  ++ended_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return ended_ == members_.size(); });
}

void ReplicaCrew::make(size_t replica) {
  Member& member = *members_[replica];
  SessionOptions session = plan_.session;
  session.quiet = replica > 0;
  const Observe observe = session.trace ? Observe::yes : Observe::no;
  const std::span<const int> all = plan_.devices.ordinals;
  const size_t own = all.size() / replicas_.count();
  OpenedDevice opened = open_devices(driver_, all.subspan(replica * own, own), observe);
  if (session.trace) opened.interposer->trace_to([](std::string_view line) { say("{}\n", line); });
  if (plan_.meeting) member.link = std::make_unique<RankLink>(*plan_.meeting);
  member.session = std::make_unique<Session>(session, std::move(opened), Loading::begun);
  if (replica > 0) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return first_is_made_ || given_up_; });
    if (problem_ || given_up_) return;
  }
  EngineSettings engine = plan_.engine;
  engine.log = file_of_replica(engine.log, replica);
  feeds_[replica]->listen_to(engine.engine);
  if (member.link) join_ranks(member, engine);
  member.engine = make_engine(engine, session, *member.session, plan_.needs);
  {
    const std::lock_guard lock(mutex_);
    ++made_;
    first_is_made_ = first_is_made_ || replica == 0;
  }
  changed_.notify_all();
}

bool ReplicaCrew::await_serving() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return serves_ || given_up_; });
  return serves_;
}

void ReplicaCrew::run(size_t replica) {
  Member& member = *members_[replica];
  EngineSleep sleep(*member.engine, member.session->models());
  try {
    replicas_.run(replica, *member.engine, plan_.offers_sleep ? &sleep : nullptr);
    if (member.link) member.link->end();
  } catch (const Error& error) {
    if (members_.size() > 1) say("nodewright: replica {} has failed: {}\n", replica, error.what());
    if (member.link) member.link->leave(error.what());
    const std::lock_guard lock(mutex_);
    failures_.emplace_back(error.what());
    (void)member.part.release();
    (void)member.link.release();
    (void)member.engine.release();  // a driver that has failed may not free what it has
    (void)member.session.release();
  }
}

}  // namespace nodewright::cli
