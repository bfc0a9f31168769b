// The outputs that calls have and that have not ended, and whether there is room for more of them: a call of thousands
// fills no place that a small one needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace nodewright {

// A value.
class OpenCalls {
 public:
  void add(uint64_t call, size_t outputs);
  void add(const OpenCalls& others);
  void remove(uint64_t call, size_t outputs);  // at most as many as it has
  size_t of(uint64_t call) const;
  size_t outputs() const { return outputs_; }

  // Whether a new call of `outputs` outputs may come where `most` are allowed: each call that is open counts for no
  // more outputs than the new one has, so that `most` calls of one output each always find room, and two of `most`
  // outputs do not. All together never have more than `most` times the logarithm of `most`.
  bool may_add(size_t outputs, size_t most) const;

 private:
  std::map<uint64_t, size_t> calls_;  // none has 0
  size_t outputs_ = 0;
};

}  // namespace nodewright
