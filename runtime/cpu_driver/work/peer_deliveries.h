// Stores into other devices' memory that are on their way. They arrive eight bytes at a time, in the order that the
// schedule chooses, except that two to one address arrive as they were sent. Guarded by the driver's lock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/cpu_driver/blocks/block_runner.h"
#include "runtime/cpu_driver/cpu_driver_api.h"

namespace nodewright::cpu {

struct State;

class PeerDeliveries {
 public:
  // Of a kernel on `device`; `sender` names it in reports.
  void send(int device, const std::string& sender, std::span<const PeerStore> stores);
  bool empty() const { return on_their_way_.empty(); }

  // What the schedule delivers before something runs: all, nothing, or some.
  void deliver_some(State& state, CpuSchedule schedule, uint64_t random);
  // One, where nothing else can go on. False: there is none.
  bool deliver_one(State& state, CpuSchedule schedule, uint64_t random);
  // Those of a device whose work the host or another stream may now count on.
  void deliver_all_of(State& state, int device);
  // After a failure.
  void drop() { on_their_way_.clear(); }

 private:
  struct OnItsWay {
    PeerStore store;
    int device;
    std::string sender;
  };
  void deliver(State& state, size_t place);

  std::vector<OnItsWay> on_their_way_;  // the oldest first
};

}  // namespace nodewright::cpu
