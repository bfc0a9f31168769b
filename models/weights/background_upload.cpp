#include "models/weights/background_upload.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "runtime/context_guard.h"
#include "runtime/error.h"

namespace nodewright {

BackgroundUpload::BackgroundUpload(Device& device, Checkpoint checkpoint, std::vector<WeightSource> sources,
                                   NamedRange to)
    : total_bytes_(to.bytes) {
  // What is read and what it is read from go with the thread: the files are closed as soon as it ends.
  const auto work = [this, &device](const std::stop_token& stop, const Checkpoint&,
                                    const std::vector<WeightSource>& from,
                                    const NamedRange& range) { upload(device, from, range, stop); };
  try {
    thread_ = std::jthread(work, std::move(checkpoint), std::move(sources), std::move(to));
  } catch (const std::system_error& error) {
    throw Error({.doing = "start the thread that uploads weights", .detail = error.what()});
  }
}

void BackgroundUpload::upload(Device& device, const std::vector<WeightSource>& sources, const NamedRange& to,
                              const std::stop_token& stop) {
  const auto start = std::chrono::steady_clock::now();
  std::exception_ptr failure;
  try {
    const ContextGuard current(device);
    Stream stream(device, to.name);
    const Progress progress{[this](uint64_t done_bytes, uint64_t) {
      {
        const std::lock_guard lock(mutex_);
        done_bytes_ = done_bytes;
      }
      changed_.notify_all();
    }};
    upload_weights(device, stream, sources, to, progress, {}, stop);
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    failure_ = std::move(failure);
    ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  changed_.notify_all();
}

void BackgroundUpload::wait(const Progress& progress) const {
  std::unique_lock lock(mutex_);
  for (uint64_t told = 0; !ended_;) {
    changed_.wait(lock, [&] { return ended_ || done_bytes_ > told; });
    told = done_bytes_;
    if (ended_ || !progress.report) continue;
    lock.unlock();
    progress.report(told, total_bytes_);
    lock.lock();
  }
  if (failure_) std::rethrow_exception(failure_);
  lock.unlock();
  if (progress.report) progress.report(total_bytes_, total_bytes_);
}

}  // namespace nodewright
