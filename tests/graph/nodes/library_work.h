// What stands for a library in tests: kernels and fills submitted to a stream, and what they do to the host model.
#pragma once

#include <functional>

#include "tests/graph/blend_fixture.h"

namespace nodewright {

// Everything goes through Driver, so that the CPU driver runs it.
inline LibraryCall library_call(std::function<void(CUstream)> submit, std::string what = {}) {
  return {.submit = std::move(submit), .on_cpu_driver = true, .what = std::move(what)};
}

// y = y * 31 + x + salt, as one kernel.
inline std::function<void(CUstream)> accumulate_work(const BlendMachine& machine, const Accumulate& args) {
  return [&machine, args](CUstream stream) {
    const Kernel<Accumulate> kernel = machine.accumulate_of(args.y.count);
    Accumulate copy = args;
    void* argument = &copy;
    CUlaunchConfig config{};
    config.gridDimX = kernel.shape.grid[0];
    config.blockDimX = kernel.shape.block[0];
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    const Driver& driver = *machine.opened.driver;
    driver.check(driver.cuLaunchKernelEx(&config, kernel.loaded->function, &argument, nullptr), "cuLaunchKernelEx",
                 "launch", "accumulate");
  };
}
inline void model_accumulate(HostModel& model, const Accumulate& args) {
  for (uint64_t i = 0; i < args.y.count; ++i) {
    uint32_t& word = model.word(reinterpret_cast<uint64_t>(args.y.data + i));
    word = word * 31u + model.word(reinterpret_cast<uint64_t>(args.x.data + i % args.x.count)) + args.salt;
  }
}
// The same on the host, for memory that the host can reach.
inline void host_accumulate(const Accumulate& args) {
  for (uint64_t i = 0; i < args.y.count; ++i)
    args.y.data[i] = args.y.data[i] * 31u + args.x.data[i % args.x.count] + args.salt;
}

inline std::function<void(CUstream)> fill_work(const BlendMachine& machine, View<uint32_t> y, uint32_t value) {
  return [&machine, y, value](CUstream stream) {
    const Driver& driver = *machine.opened.driver;
    driver.check(driver.cuMemsetD32Async(y.address(), value, y.count, stream), "cuMemsetD32Async", "fill", "y");
  };
}
inline void model_fill(HostModel& model, View<uint32_t> y, uint32_t value) {
  for (uint64_t i = 0; i < y.count; ++i) model.word(y.address() + 4 * i) = value;
}

}  // namespace nodewright
