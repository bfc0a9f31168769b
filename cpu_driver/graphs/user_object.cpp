#include "cpu_driver/graphs/user_object.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace nodewright::cpu {
namespace {

// Calls functions one after the other. Lives as long as the process.
class Destroyer {
 public:
  Destroyer() {
    std::thread([this] { run(); }).detach();
  }
  void add(CUhostFn function, void* data) {
    const std::lock_guard lock(mutex_);
    due_.emplace_back(function, data);
    more_.notify_one();
  }

 private:
  void run() {
    destroys_user_object = true;
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [this] { return !due_.empty(); });
      const auto [function, data] = due_.front();
      due_.pop_front();
      lock.unlock();
      function(data);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::pair<CUhostFn, void*>> due_;
};

}  // namespace

thread_local bool destroys_user_object = false;

UserObject::~UserObject() {
  static Destroyer& destroyer = *new Destroyer;
  destroyer.add(destroy, data);
}

}  // namespace nodewright::cpu
