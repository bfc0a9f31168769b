#include "serve/loop/open_calls.h"

#include <algorithm>

namespace nodewright {

void OpenCalls::add(uint64_t call, size_t outputs) {
  if (outputs == 0) return;
  calls_[call] += outputs;
  outputs_ += outputs;
}

void OpenCalls::add(const OpenCalls& others) {
  for (const auto& [call, outputs] : others.calls_) add(call, outputs);
}

void OpenCalls::remove(uint64_t call, size_t outputs) {
  const auto found = calls_.find(call);
  if (found == calls_.end() || outputs == 0) return;
  found->second -= outputs;
  outputs_ -= outputs;
  if (found->second == 0) calls_.erase(found);
}

size_t OpenCalls::of(uint64_t call) const {
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

bool OpenCalls::may_add(size_t outputs, size_t most) const {
  if (outputs_ + outputs <= most) return true;
  size_t counted = outputs;
  for (const auto& [call, open] : calls_)
    if (counted += std::min(open, outputs); counted > most) return false;
  return counted <= most;
}

}  // namespace nodewright
