// Weights on their way to the device while their model is made ready: kernels, plans and graphs need the addresses of
// weights alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "models/weights/checkpoint.h"
#include "models/weights/weight_upload.h"

namespace nodewright {

// upload_weights on a thread and over a stream of its own.
class BackgroundUpload {
 public:
  // `sources` read from `checkpoint`; the memory at `to` must outlive this.
  BackgroundUpload(Device& device, Checkpoint checkpoint, std::vector<WeightSource> sources, NamedRange to);
  ~BackgroundUpload() = default;  // gives up what has not arrived
  BackgroundUpload(const BackgroundUpload&) = delete;
  BackgroundUpload& operator=(const BackgroundUpload&) = delete;

  // Returns when all has arrived. Throws Error, each time it is called, when something did not: as upload_weights does.
  void wait(const Progress& progress) const;
  // Until all had arrived, in milliseconds; after wait().
  double ms() const { return ms_; }

 private:
  void upload(Device& device, const std::vector<WeightSource>& sources, const NamedRange& to,
              const std::stop_token& stop);

  const uint64_t total_bytes_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  uint64_t done_bytes_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_;
  double ms_ = 0;
  std::jthread thread_;  // last: ended before what it uses goes away
};

}  // namespace nodewright
