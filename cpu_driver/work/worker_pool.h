// Spreads the clusters of one grid, mostly single blocks, over the executor's thread and parked helpers. One grid at a
// time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu_driver/blocks/block_runner.h"

namespace nodewright::cpu {

// Which of a grid's `clusters` clusters begins as number `turn`: the schedule's choice.
uint64_t cluster_at(const Grid& grid, uint64_t clusters, uint64_t turn);

class WorkerPool {
 public:
  // `workers` threads in all, the calling one included. 0: as many as the machine has cores.
  WorkerPool(int workers, uint64_t timeout_ms);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs every block, always from the same thread. `ns_per_block` is what earlier launches took (0: unknown) and is
  // brought up to date: waking helpers for less work than a wake costs is not worth it.
  BlockFailure run(const Grid& grid, double& ns_per_block);

  // For kernels whose blocks wait for other devices: part of one, on the calling thread, within the time of a launch;
  // and runners for blocks that wait, to be given back.
  BlockEnd run_watched(const std::function<BlockEnd()>& go_on);
  std::unique_ptr<BlockRunner> borrow_runner();
  void give_back(std::unique_ptr<BlockRunner> runner) { idle_runners_.push_back(std::move(runner)); }

 private:
  struct Job {
    const Grid* grid;
    uint64_t clusters;
    std::atomic<uint64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex failure_mutex;
    BlockFailure failure;
  };

  void helper_main();
  void watchdog_main();
  void work_on(Job& job, BlockRunner& runner);

  BlockRunner own_runner_;
  std::vector<std::unique_ptr<BlockRunner>> idle_runners_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_, watch_;
  Job* job_ = nullptr;       // helpers may join while it is set
  uint64_t generation_ = 0;  // of job_
  int active_ = 0;           // helpers at work on it
  bool stopping_ = false;
  uint64_t timeout_ms_;
  bool running_ = false;  // for the watchdog, as generation_
  std::vector<pthread_t> runners_;
  std::vector<std::thread> threads_;
};

}  // namespace nodewright::cpu
