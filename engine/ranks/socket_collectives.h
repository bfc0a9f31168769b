// Exchanges over the connections of a group, in a star around rank 0: for the CPU driver, whose steps run on the host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/ranks/rank_link.h"
#include "runtime/libraries/collectives.h"

namespace nodewright {

// One exchange at a time. Where a rank is missing, or the ranks exchange unlike things, the link learns of it before
// the Error is thrown, and every later exchange throws at once.
class SocketCollectives final : public Collectives {
 public:
  // `link` must outlive this.
  explicit SocketCollectives(RankLink& link) : link_(link) {}

  size_t rank() const override { return link_.rank(); }
  size_t ranks() const override { return link_.ranks(); }
  // Throws Error: a device does not exchange over sockets.
  void all_gather(CUstream stream, CUdeviceptr from, CUdeviceptr to, uint64_t bytes) override;
  void all_gather_on_host(const void* from, void* to, uint64_t bytes) override;
  void give_up() noexcept override;
  bool given_up() const noexcept override { return given_up_; }

 private:
  void gather(const std::byte* from, std::byte* to, uint64_t bytes);
  void join(const std::byte* from, std::byte* to, uint64_t bytes);
  [[noreturn]] void lose(size_t rank, const std::string& why);

  RankLink& link_;
  uint64_t next_ = 0;  // number of the next exchange
  std::atomic<bool> given_up_ = false;
};

}  // namespace nodewright
