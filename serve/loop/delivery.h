// What steps gave, handed from the engine's thread to the listeners on a thread of its own: no listener delays a step.
#pragma once

#include <condition_variable>
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
  Delivery();
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

 private:
  void deliver();

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Parcel> parcels_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nodewright
