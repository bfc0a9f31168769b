// What steps gave, handed from the engine's thread to the listeners on a thread of its own: no listener delays a step.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/loop/submission.h"

namespace nodewright {

class Delivery {
 public:
  // `delivered`: told after each round of listeners how long its oldest parcel waited and they took, in seconds; on the
  // delivery thread.
  explicit Delivery(std::function<void(double)> delivered);
  ~Delivery();  // delivers what it has first
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  struct Parcel {
    std::shared_ptr<Listener> to;
    std::vector<OutputUpdate> updates;
    std::string refused;  // not empty: instead of updates
  };
  // What one step gave. Never blocks for a listener.
  void send(std::vector<Parcel> parcels);
  // Waits until what was sent before has been delivered, and let go of. From any thread but the delivery thread.
  void flush();

 private:
  void deliver();

  std::function<void(double)> delivered_;
  std::mutex mutex_;
  std::condition_variable came_, emptied_;
  std::vector<Parcel> parcels_;
  bool delivers_ = false;                         // parcels that are no longer in parcels_
  std::chrono::steady_clock::time_point oldest_;  // of parcels_
  bool ended_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nodewright
