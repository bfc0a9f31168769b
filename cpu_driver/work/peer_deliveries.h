// Stores into other devices' memory that are on their way. They arrive eight bytes at a time, in the order that the
// schedule chooses, except that two to one address arrive as they were sent, and that a fence lets all arrive that was
// sent before it. Guarded by the driver's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpu_driver/blocks/block_runner.h"
#include "runtime/calls/cpu_driver_api.h"

namespace nodewright::cpu {

struct State;

class PeerDeliveries {
 public:
  // Sends stores of a kernel on `device`; `sender` names it in reports.
  void send(State& state, int device, const std::string& sender, std::span<const PeerStore> stores);

  // What the schedule delivers before something runs: all, nothing, or some.
  void deliver_some(State& state, CpuSchedule schedule, uint64_t random);
  // Some, where nothing else can go on. False: there are none.
  bool deliver_next(State& state, CpuSchedule schedule, uint64_t random);
  // Those of a device whose work the host or another stream may now count on.
  void deliver_all_of(State& state, int device);
  // After a failure.
  void drop();

 private:
  struct OnItsWay {
    uint64_t value;
    int device;
    std::shared_ptr<const std::string> sender;
  };
  // To one address, the oldest first, and where the address stands in addresses_.
  struct Queue {
    std::deque<OnItsWay> stores;
    size_t place;
  };
  void deliver(State& state, size_t place);

  std::vector<uint64_t> addresses_;  // with stores on their way; the newest last, but for what deliver() moves
  std::unordered_map<uint64_t, Queue> queues_;
};

}  // namespace nodewright::cpu
