// Runs one kernel as a plan of one node, over buffers that have sentinels at both ends and start as NaN.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/run/eager_run.h"
#include "runtime/memory/memory.h"
#include "tests/kernels/machine.h"

namespace nodewright::test {

// Device memory whose every byte, and 256 more before and after it, starts as 0xff: NaN as a float or bf16, -1 as an
// integer. What reads beyond its end meets NaN, what writes there is found by read().
template <class T>
class Guarded {
 public:
  Guarded(const std::string& name, size_t count)
      : count_(count), buffer_(machine().device, name, count * sizeof(T) + 2 * kGuardBytes) {
    fill_device(buffer_.device(), buffer_.address(), kPoison, buffer_.bytes(), name);
  }
  Guarded(const std::string& name, const std::vector<T>& values) : Guarded(name, values.size()) {
    write_view(buffer_.device(), view(), std::span<const T>(values), name);
  }

  View<T> view() const { return {reinterpret_cast<T*>(buffer_.address() + kGuardBytes), count_}; }
  Weight<T> weight() const { return {view().data, count_}; }
  operator In<T>() const { return view(); }
  operator Settled<T>() const { return view(); }
  operator Out<T>() const { return view(); }
  operator PartialOut<T>() const { return view(); }
  operator InOut<T>() const { return view(); }
  operator SettledInOut<T>() const { return view(); }
  operator Frozen<T>() const { return weight(); }

  void write(const std::vector<T>& values) {
    write_view(buffer_.device(), view(), std::span<const T>(values), buffer_.name());
  }

  // The elements; fails the test when a byte around them has changed.
  std::vector<T> read() const {
    std::vector<std::byte> bytes(buffer_.bytes());
    read_device(buffer_.device(), bytes, buffer_.address(), buffer_.name());
    std::vector<T> values(count_);
    std::memcpy(static_cast<void*>(values.data()), bytes.data() + kGuardBytes, count_ * sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool is_guard = i < kGuardBytes || i >= kGuardBytes + count_ * sizeof(T);
      if (!is_guard || bytes[i] == kPoison) continue;
      ADD_FAILURE() << buffer_.name() << ": byte " << static_cast<int64_t>(i) - static_cast<int64_t>(kGuardBytes)
                    << " of " << count_ * sizeof(T) << " was written";
      break;
    }
    return values;
  }

 private:
  static constexpr size_t kGuardBytes = 256;  // keeps the alignment of the allocation
  static constexpr std::byte kPoison{0xff};

  size_t count_;
  DeviceBuffer buffer_;
};

// What a Guarded holds before anything is written.
template <class T>
std::vector<T> poisoned(size_t count) {
  std::vector<T> values(count);
  std::memset(static_cast<void*>(values.data()), 0xff, count * sizeof(T));
  return values;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return same_bits(std::span<const T>(a), std::span<const T>(b));
}

// Elements [row * stride, row * stride + count) of `values`.
template <class T>
std::span<const T> row_of(const std::vector<T>& values, int64_t row, int64_t stride, int64_t count) {
  return std::span<const T>(values).subspan(static_cast<size_t>(row * stride), static_cast<size_t>(count));
}

// Launches the kernel as the only node of a plan, and waits.
template <KernelArgs A>
void run_node(const Kernel<A>& kernel, const A& args) {
  GraphBuilder g(machine().device, "one_node");
  for_each_field(args, [&]<class F>(const FieldInfo& info, const F& field) {
    if constexpr (is_memory(RoleOf<F>::role)) {
      if (field.count == 0) return;  // an optional field that was left out
      g.declare({std::string(info.name), reinterpret_cast<uint64_t>(field.data),
                 field.count * sizeof(typename F::element), RoleOf<F>::role == Role::frozen ? "weight" : "activation"},
                {.live_in = true, .live_out = true});
    }
  });
  g.launch("node", kernel, args);
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  run_eager(plan, machine().stream);
  machine().stream.synchronize();
}

}  // namespace nodewright::test
