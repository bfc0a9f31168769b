// Gathers over ranks by NCCL: of one process that has all devices, or of processes that have one each.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/libraries/collectives.h"
#include "runtime/libraries/nccl_library.h"

namespace nodewright {

// A communicator of NCCL. Graphs that hold its calls must be destroyed before it is. As Collectives in all else.
class NcclCollectives : public Collectives {
 public:
  // What the first rank makes and tells all others, by whatever way they have.
  static nccl::UniqueId new_id(const NcclLibrary& library);
  // All ranks of this process, in the order of `devices`. Throws Error with what NCCL said.
  static std::vector<std::unique_ptr<NcclCollectives>> of_devices(std::shared_ptr<const NcclLibrary> library,
                                                                  std::span<Device* const> devices);
  // One rank of `ranks`; returns when all others have come. Throws Error with what NCCL said.
  NcclCollectives(std::shared_ptr<const NcclLibrary> library, Device& device, const nccl::UniqueId& id, size_t rank,
                  size_t ranks);
  ~NcclCollectives() override;

  size_t rank() const override { return rank_; }
  size_t ranks() const override { return ranks_; }
  void all_gather(CUstream stream, CUdeviceptr from, CUdeviceptr to, uint64_t bytes) override;
  // Throws Error: devices of the CPU driver have no NCCL.
  void all_gather_on_host(const void* from, void* to, uint64_t bytes) override;
  void give_up() noexcept override;
  bool given_up() const noexcept override { return given_up_.load(); }

 private:
  NcclCollectives(std::shared_ptr<const NcclLibrary> library, Device& device, size_t rank, size_t ranks);
  void join(const nccl::UniqueId& id);
  static void connect(std::span<NcclCollectives* const> of_process);

  std::shared_ptr<const NcclLibrary> library_;
  Device& device_;
  size_t rank_, ranks_;
  std::string name_;  // "rank 1 of 2"
  nccl::Comm comm_ = nullptr;
  std::atomic<bool> given_up_ = false;
  std::mutex mutex_;      // of aborting_
  std::thread aborting_;  // NCCL's abort returns when the graphs that hold its calls are gone
};

}  // namespace nodewright
