#include "cpu_driver/work/peer_launch.h"

#include <algorithm>
#include <cstdio>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/work/report_words.h"
#include "cpu_driver/work/worker_pool.h"

namespace nodewright::cpu {

PeerLaunch::PeerLaunch(const std::string& label, KernelWork& work, std::unique_ptr<LaunchedGrid> launched,
                       uint64_t resident)
    : label_(label),
      work_(work),
      launched_(std::move(launched)),
      clusters_(launched_->grid.clusters()),
      resident_(resident),
      random_(launched_->grid.seed | 1) {}

// The cluster to go on with, or null and `starts`: a new one begins, or neither, where all wait. Forward begins all
// that fit before it goes on with the first; reverse goes on with the last, and begins others then.
BlockRunner* PeerLaunch::choose(bool& starts) {
  const bool can_start = started_ < clusters_ && waiting_.size() < resident_;
  std::vector<BlockRunner*> ready;
  for (const auto& runner : waiting_)
    if (runner->can_go_on()) ready.push_back(runner.get());
  const CpuSchedule schedule = launched_->grid.schedule;
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  starts = can_start && (ready.empty() || schedule == CpuSchedule::forward ||
                         (schedule == CpuSchedule::seeded && random_ >> 40 & 1));
  if (starts || ready.empty()) return nullptr;
  if (schedule == CpuSchedule::forward) return ready.front();
  return schedule == CpuSchedule::reverse ? ready.back() : ready[(random_ >> 33) % ready.size()];
}

Progress PeerLaunch::step(State& state, std::unique_lock<std::mutex>& lock, WorkerPool& pool, BlockFailure& failure) {
  bool starts = false;
  BlockRunner* runner = choose(starts);
  if (runner == nullptr && !starts) return Progress::blocked;
  std::unique_ptr<BlockRunner> fresh = starts ? pool.borrow_runner() : nullptr;
  lock.unlock();
  const BlockEnd end = pool.run_watched([&] {
    if (runner != nullptr) return runner->resume();
    return fresh->run(launched_->grid, cluster_at(launched_->grid, clusters_, started_));
  });
  lock.lock();
  if (starts) {
    ++started_;
    runner = fresh.get();
    waiting_.push_back(std::move(fresh));
  }
  state.deliveries.send(state, work_.device, node_text(label_, work_.loaded->image->name), runner->take_stores());
  if (end == BlockEnd::waiting) return Progress::ran;
  if (end == BlockEnd::failed) failure = runner->failure();
  const auto place =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& each) { return each.get() == runner; });
  pool.give_back(std::move(*place));
  waiting_.erase(place);
  ++ended_;
  return end == BlockEnd::failed || ended_ == clusters_ ? Progress::finished : Progress::ran;
}

std::string PeerLaunch::describe(const State& state) const {
  std::string text = "device " + std::to_string(work_.device) + ", " + node_text(label_, work_.loaded->image->name) +
                     ": " + std::to_string(waiting_.size()) + " of " + std::to_string(clusters_) + " blocks wait";
  if (started_ < clusters_)
    text += ", " + std::to_string(clusters_ - started_) + " do not fit on the device beside them";
  if (ended_ > 0) text += ", " + std::to_string(ended_) + " have ended";
  if (waiting_.empty()) return text;
  const Waiting first = waiting_.front()->waiting();
  const auto address = reinterpret_cast<uint64_t>(first.watch.address);
  const uint32_t held = static_cast<uint32_t>(first.watch.seen >> 32);
  return text + ", block " + index_text(first.block) + ", thread " + index_text(first.thread) + " for epoch " +
         std::to_string(first.watch.epoch) + " at address " + hex(address) + " " + state.memory->describe(address) +
         ", where epoch " + std::to_string(held) + " is";
}

}  // namespace nodewright::cpu
