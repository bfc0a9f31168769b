// The --device option: a word becomes an open device. The CPU driver runs only when it is named, never as a fallback.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/calls/interposer.h"
#include "runtime/context_guard.h"
#include "runtime/device.h"

namespace nodewright {

// Owns what a device needs, destroyed in the reverse order, on the thread that opened it.
struct OpenedDevice {
  std::unique_ptr<Driver> driver;                  // CUDA's, or the CPU driver
  std::unique_ptr<Interposer> interposer;          // null unless asked for
  std::unique_ptr<Device> device;                  // what a program uses
  std::vector<std::unique_ptr<Device>> more = {};  // of several, those behind it
  std::unique_ptr<ContextGuard>
      current;  // its context is current on this thread, which saves every call from setting it

  // Stands for the device wherever one is asked for.
  operator Device&() const { return *device; }
};

// yes: with an Interposer, which sees every driver call. no: calls go straight to the driver.
enum class Observe { no, yes };

// `spec`: "auto" (the first CUDA device), "cuda", "cuda:N", "cuda:N,M" (several, all of which `count` must be), "cpu",
// or "cpu:" and options joined by commas; the words are those of kCpuOptionWords in device_selection.cpp
// ("cpu:checked,sm80"). Throws Error with Fault::usage when the spec is not understood, and with Fault::run_time, the
// reason, and the advice `--device cpu` when there is no CUDA device. `count`: devices to open; of a spec that names
// one, the next ones too. The CPU driver has as many as are asked for.
OpenedDevice open_device(std::string_view spec, Observe observe = Observe::no, int count = 1);

// How many devices `spec` names by number: 0 for none, as "auto".
int devices_named(std::string_view spec);

}  // namespace nodewright
