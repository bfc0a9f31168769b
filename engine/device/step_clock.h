// When the steps of StepSlots ran on the device: events before and after each, read when all is done.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/event.h"

namespace nodewright {

class StepClock {
 public:
  // Records the first `steps` steps.
  StepClock(Device& device, size_t steps);

  void begin(const Stream& stream);
  void end(const Stream& stream);

  // Waits for the last recorded step. Microseconds that the device spent on each, and from the end of each to the
  // begin of the next: about 0 where the next was submitted in time. The events themselves take some 2 us a step.
  std::vector<double> step_us() const;
  std::vector<double> gap_us() const;

 private:
  struct Step {
    Event begin, end;
  };
  std::vector<Step> steps_;
  size_t recorded_ = 0;
};

}  // namespace nodewright
