// Opens the device that a word names. The CPU driver runs only when it is named, never as a fallback.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/calls/interposer.h"
#include "runtime/context_guard.h"
#include "runtime/device.h"

namespace nodewright {

// Owns what a device needs, destroyed in the reverse order, on the thread that opened it.
struct OpenedDevice {
  std::shared_ptr<Driver> driver;                  // CUDA's, or the CPU driver; of several devices the same
  std::unique_ptr<Interposer> interposer;          // null unless asked for
  std::unique_ptr<Device> device;                  // what a program uses
  std::vector<std::unique_ptr<Device>> more = {};  // the others of open_devices()
  std::unique_ptr<ContextGuard>
      current;  // its context is current on this thread, which saves every call from setting it

  // Stands for the device wherever one is asked for.
  operator Device&() const { return *device; }
};

// yes: with an Interposer, which sees every driver call. no: calls go straight to the driver.
enum class Observe { no, yes };

// `spec`: "auto" (the first CUDA device), "cuda", "cuda:N", "cpu", or "cpu:" and options joined by commas; the words
// are those of kCpuOptionWords in device_selection.cpp ("cpu:checked,sm80"). Throws Error with Fault::usage when the
// spec is not understood, and with Fault::run_time, the reason, and the advice kUseCpuDriver when there is no CUDA
// device.
OpenedDevice open_device(std::string_view spec, Observe observe = Observe::no);

// Several devices of one driver, as such a word names them.
struct DeviceChoice {
  std::string driver;         // "cuda", "cpu" or "cpu:" with its options
  std::vector<int> ordinals;  // each once
};

// `spec`: as above, or "cuda:0,2" with a number for each device; "auto", "cuda" and "cpu" name the first `count`.
// Throws Error (usage) where it is not understood, names a device twice, or names more or fewer than `count`, which is
// `for_what` ("--replicas 2"). Opens nothing.
DeviceChoice choose_devices(std::string_view spec, int count, std::string_view for_what);

// The driver of such a choice, and one of its devices, current on the calling thread. Errors as open_device(spec).
std::shared_ptr<Driver> open_driver(std::string_view spec);
OpenedDevice open_device(std::shared_ptr<Driver> driver, int ordinal, Observe observe = Observe::no);

// Several, at least one, for one thread: the first is current on it.
OpenedDevice open_devices(std::shared_ptr<Driver> driver, std::span<const int> ordinals, Observe observe = Observe::no);

// How many devices `spec` names by number: 0 for none, as "auto".
int devices_named(std::string_view spec);

}  // namespace nodewright
