// A launch of a kernel that meets peers: its clusters run one at a time on the executor's thread, and those that wait
// for packets are left with their stacks, so that another device's kernels can run meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu_driver/blocks/access_check.h"
#include "cpu_driver/blocks/block_runner.h"
#include "cpu_driver/work/stream_queue.h"

namespace nodewright::cpu {

// What a launch hands to its blocks, kept as long as they live.
struct LaunchedGrid {
  std::shared_ptr<LoadedImage> keep;
  std::vector<std::shared_ptr<Conditional>> conditionals;
  std::vector<Conditional*> settable;
  AccessRules rules;
  Grid grid;
};

class PeerLaunch {
 public:
  // `work` and `label` outlive it. A device has room for `resident` clusters at once.
  PeerLaunch(const std::string& label, KernelWork& work, std::unique_ptr<LaunchedGrid> launched, uint64_t resident);

  // Starts one cluster or goes on with one. Blocked: all wait that fit on the device. `failure`: of a cluster that was
  // abandoned; then the launch has ended.
  Progress step(State& state, std::unique_lock<std::mutex>& lock, WorkerPool& pool, BlockFailure& failure);
  const AccessRules& rules() const { return launched_->rules; }
  // "device 1, node 'l0.out', kernel all_reduce: 2 of 2 blocks wait, block (0,0,0), thread (0,0,0) for epoch 3 at ..."
  std::string describe(const State& state) const;

 private:
  BlockRunner* choose(bool& starts);

  const std::string& label_;
  KernelWork& work_;
  std::unique_ptr<LaunchedGrid> launched_;
  uint64_t clusters_, resident_, started_ = 0, ended_ = 0, random_;
  std::vector<std::unique_ptr<BlockRunner>> waiting_;
};

}  // namespace nodewright::cpu
