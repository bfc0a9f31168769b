#include "cli/version/version.h"

#include <cuda.h>
#include <fmt/format.h>

#include "base/visible_text.h"
#include "cli/version/build_commit.h"
#include "runtime/compilers/nvrtc.h"
#include "runtime/driver.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

// "13.0" of 13000.
std::string cuda_release(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// No context is made: it would take a GPU's memory, and a second.
std::string first_device(const Driver& driver) {
  driver.check(driver.cuInit(0), "cuInit", "start the driver", driver.path());
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount", "count the devices of", driver.path());
  if (count == 0) return "none";
  CUdevice device = 0;
  char name[256] = {};
  driver.check(driver.cuDeviceGet(&device, 0), "cuDeviceGet", "open device", "cuda:0");
  driver.check(driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName", "read the name of device",
               "cuda:0");
  return count == 1 ? std::string(name) : fmt::format("{}, and {} more", name, count - 1);
}

std::string driver_lines() {
  try {
    const auto driver = Driver::load_cuda();
    std::string device;
    try {
      device = first_device(*driver);
    } catch (const Error& error) {
      device = fmt::format("none ({})", error.parts().driver);
    }
    return fmt::format("driver  for CUDA {}\ndevice  {}\n", cuda_release(driver->version()), visible_text(device));
  } catch (const Error& error) {
    const std::string& why = error.parts().detail;
    const bool none = why.starts_with("no NVIDIA driver");
    return fmt::format("driver  {}\n", none ? "no NVIDIA driver" : visible_text("cannot be used: " + why));
  }
}

std::string nvrtc_words() {
  try {
    const auto compiler = Nvrtc::load();
    return fmt::format("NVRTC {}.{} ({})", compiler->major(), compiler->minor(), visible_text(compiler->path()));
  } catch (const Error&) {
    return "no NVRTC (nodewright doctor lists the places)";
  }
}

}  // namespace

std::string version_text() {
  return fmt::format("nodewright {}\ncommit  {}\n{}CUDA    headers of {}, {}", NODEWRIGHT_VERSION, build_commit(),
                     driver_lines(), cuda_release(CUDA_VERSION), nvrtc_words());
}

}  // namespace nodewright::cli
