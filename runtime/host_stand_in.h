// A function of the program that stands for a kernel where the kernel cannot run: on the CPU driver. Knows no driver.
//
//   void scale(uint64_t n, float factor, float* x);    // the kernel's parameters, in its order
//   HostStandIn stand_in = scale;                      // or a lambda with such parameters
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/kernels/parameter_layout.h"

namespace nodewright {

// The function is called once a launch, on a thread of the CPU driver, and does the work of the whole grid; pointers
// are addresses that the host may use. What it throws ends the launch with CUDA_ERROR_LAUNCH_FAILED and its words.
class HostStandIn {
 public:
  // None: a kernel without a stand-in is refused on the CPU driver.
  HostStandIn() = default;

  // A function, or a function object with one operator(); its parameters are trivially copyable values.
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, HostStandIn>) HostStandIn(Function&& function)
      : HostStandIn(std::function(std::forward<Function>(function)), Typed()) {}

  explicit operator bool() const { return run_ != nullptr; }  // whether there is one
  // Offsets and sizes, as a kernel has them.
  const std::vector<KernelParameter>& parameters() const { return parameters_; }
  // Calls the function with what lies in a parameter block.
  void run(const std::byte* block) const { run_(block); }

 private:
  struct Typed {};

  template <class Result, class... P>
  HostStandIn(std::function<Result(P...)> function, Typed) {
    static_assert((!std::is_reference_v<P> && ...), "a kernel takes no references: take the parameter by value");
    static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's parameters are trivially copyable");
    static constexpr auto layout = parameter_layout<P...>();
    parameters_.assign(layout.begin(), layout.end());
    run_ = [function = std::move(function)]([[maybe_unused]] const std::byte* block) {
      [&]<size_t... I>(std::index_sequence<I...>) { function(load<P>(block + layout[I].offset)...); }
      (std::index_sequence_for<P...>());
    };
  }

  template <class P>
  static P load(const std::byte* from) {
    alignas(P) std::byte held[sizeof(P)];
    std::memcpy(held, from, sizeof(P));
    return *std::launder(reinterpret_cast<P*>(held));
  }

  std::vector<KernelParameter> parameters_;
  std::function<void(const std::byte*)> run_;
};

}  // namespace nodewright
