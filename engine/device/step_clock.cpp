#include "engine/device/step_clock.h"

namespace nodewright {

StepClock::StepClock(Device& device, size_t steps) {
  steps_.reserve(steps);
  for (size_t i = 0; i < steps; ++i)
    steps_.push_back({Event(device, "step.begin", true), Event(device, "step.end", true)});
}

void StepClock::begin(const Stream& stream) {
  if (recorded_ < steps_.size()) steps_[recorded_].begin.record(stream);
}

void StepClock::end(const Stream& stream) {
  if (recorded_ < steps_.size()) steps_[recorded_++].end.record(stream);
}

std::vector<double> StepClock::step_us() const {
  std::vector<double> us;
  for (size_t i = 0; i < recorded_; ++i) {
    steps_[i].end.synchronize();
    us.push_back(1e3 * static_cast<double>(steps_[i].end.ms_since(steps_[i].begin)));
  }
  return us;
}

std::vector<double> StepClock::gap_us() const {
  std::vector<double> us;
  for (size_t i = 1; i < recorded_; ++i) {
    steps_[i].begin.synchronize();
    us.push_back(1e3 * static_cast<double>(steps_[i].begin.ms_since(steps_[i - 1].end)));
  }
  return us;
}

}  // namespace nodewright
