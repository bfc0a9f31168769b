// Which forms of hardware the kernels use on a device, and how they compute a step there: what it reports, looked at by
// the lowering itself. For reports, not for decisions.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace nodewright {

// Compute capabilities for which every kernel is compiled by `make check-architectures`, as ten times the major and the
// minor number.
inline constexpr std::array kCompiledFor = {80, 86, 89, 90, 100, 120};

// A line for each form, for edges, clusters, copies, products, attention and sums over ranks, with the rows of a step
// that have it, in a model of Llama-3.2-1B's shape. `emulated`: on the CPU driver, which computes as the device that it
// reports but copies by threads.
std::vector<std::string> device_forms(const DeviceProperties& device, bool emulated);

// How far the kernels have been tried on such a device: empty for an H100 and an H200, on which they run.
std::string untried_on(const DeviceProperties& device);

}  // namespace nodewright
