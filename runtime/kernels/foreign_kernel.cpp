#include "runtime/kernels/foreign_kernel.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/kernels/kernel_parameters.h"
#include "runtime/kernels/library.h"

namespace nodewright {
namespace {

// What the CPU driver calls in a kernel's place: `function` is a HostStandIn.
const char* run_stand_in(const void* function, const void* arguments) {
  thread_local std::string problem;
  try {
    static_cast<const HostStandIn*>(function)->run(static_cast<const std::byte*>(arguments));
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
  } catch (...) {
    problem = "an exception of an unknown type";
  }
  return problem.c_str();
}
void* copy_stand_in(const void* function) { return new HostStandIn(*static_cast<const HostStandIn*>(function)); }
void release_stand_in(void* function) { delete static_cast<HostStandIn*>(function); }

// PTX is text that ends with a zero; cubins and fatbins begin with bytes that no text has.
bool is_text(std::span<const std::byte> image) {
  constexpr unsigned char kElf[] = {0x7f, 'E', 'L', 'F'};
  constexpr unsigned char kFatbin[] = {0x50, 0xed, 0x55, 0xba};  // FATBIN_MAGIC, __fatBinC_Wrapper_t's data
  return image.size() >= 4 && std::memcmp(image.data(), kElf, 4) != 0 && std::memcmp(image.data(), kFatbin, 4) != 0;
}

}  // namespace

struct ForeignKernel::State {
  Device* device;
  std::optional<Library> library;  // none: the kernel is borrowed
  LoadedKernel kernel;
};

ForeignKernel::ForeignKernel(Device& device, std::string name)
    : state_(std::make_unique<State>(State{&device, std::nullopt, {}})) {
  state_->kernel.name = std::move(name);
  state_->kernel.device = &device;
}
ForeignKernel::ForeignKernel(ForeignKernel&&) noexcept = default;
ForeignKernel& ForeignKernel::operator=(ForeignKernel&&) noexcept = default;
ForeignKernel::~ForeignKernel() = default;

const LoadedKernel& ForeignKernel::loaded() const { return state_->kernel; }

void ForeignKernel::allow_shared(unsigned bytes) {
  if (bytes > allowed_dynamic_shared(state_->kernel)) allow_dynamic_shared(*state_->device, state_->kernel, bytes);
}

ForeignKernel ForeignKernel::of_stand_in(Device& device, std::string name, const HostStandIn& stand_in) {
  if (!stand_in)
    throw Error({.doing = "load kernel",
                 .object = name,
                 .detail = "the CPU driver cannot run its code, and it has no stand-in",
                 .advice = "pass a function of the host with the kernel's parameters"});
  std::vector<CpuKernelParameter> parameters;
  for (const KernelParameter& parameter : stand_in.parameters())
    parameters.push_back({parameter.offset, parameter.bytes});
  ForeignKernel kernel(device, std::move(name));
  const CpuHostKernel image{.name = kernel.name().c_str(),
                            .parameters = parameters.data(),
                            .parameter_count = parameters.size(),
                            .function = &stand_in,
                            .run = run_stand_in,
                            .copy = copy_stand_in,
                            .release = release_stand_in};
  kernel.load(std::as_bytes(std::span(&image, 1)));
  return kernel;
}

void ForeignKernel::load(std::span<const std::byte> image) {
  state_->library.emplace(*state_->device, name(), image);
  take(state_->library->kernel(name()));
}

void ForeignKernel::take(CUkernel kernel) {
  const ContextGuard current(*state_->device);
  const Driver& driver = state_->device->driver();
  state_->kernel.kernel = kernel;
  CUfunction function = nullptr;
  driver.check(driver.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction", "load kernel", name());
  take(function);
}

void ForeignKernel::take(CUfunction function) {
  const ContextGuard current(*state_->device);
  const Driver& driver = state_->device->driver();
  LoadedKernel& kernel = state_->kernel;
  kernel.function = function;
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    driver.check(driver.cuFuncGetAttribute(&value, which, function), "cuFuncGetAttribute", "read a property of kernel",
                 kernel.name, "attribute " + std::to_string(which));
    return value;
  };
  kernel.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.spill_bytes = static_cast<uint64_t>(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  kernel.static_shared_bytes = static_cast<uint64_t>(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  kernel.max_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  kernel.parameters = parameters_of(driver, function, kernel.name);
  if (!kernel.parameters.empty()) kernel.args_bytes = kernel.parameters.back().end();
}

ForeignKernel borrow_kernel(Device& device, CUfunction function, std::string name, const HostStandIn& stand_in) {
  if (device.driver().is_cpu()) return ForeignKernel::of_stand_in(device, std::move(name), stand_in);
  ForeignKernel borrowed(device, std::move(name));
  borrowed.take(function);
  return borrowed;
}

ForeignKernel borrow_kernel(Device& device, CUkernel kernel, std::string name, const HostStandIn& stand_in) {
  if (device.driver().is_cpu()) return ForeignKernel::of_stand_in(device, std::move(name), stand_in);
  ForeignKernel borrowed(device, std::move(name));
  borrowed.take(kernel);
  return borrowed;
}

ForeignKernel load_kernel(Device& device, std::span<const std::byte> image, const std::string& symbol,
                          const HostStandIn& stand_in) {
  if (device.driver().is_cpu()) return ForeignKernel::of_stand_in(device, symbol, stand_in);
  ForeignKernel loaded(device, symbol);
  if (is_text(image)) {
    std::vector<std::byte> text(image.begin(), image.end());
    text.push_back(std::byte{0});
    loaded.load(text);
  } else {
    loaded.load(image);
  }
  return loaded;
}

ForeignKernel load_kernel_file(Device& device, const std::filesystem::path& file, const std::string& symbol,
                               const HostStandIn& stand_in) {
  if (device.driver().is_cpu()) return load_kernel(device, {}, symbol, stand_in);
  std::error_code unused;  // a folder opens, and the first read of it throws
  std::ifstream stream;
  if (!std::filesystem::is_directory(file, unused)) stream.open(file, std::ios::binary);
  if (!stream.is_open()) stream.setstate(std::ios::failbit);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream || bytes.empty())
    throw Error({.doing = "load kernel",
                 .object = symbol,
                 .detail = "file " + file.string() + (stream ? " is empty" : " cannot be read"),
                 .advice = "name a cubin, a fatbin or PTX"});
  return load_kernel(device, std::as_bytes(std::span(bytes)), symbol, stand_in);
}

ForeignKernel compile_kernel(KernelCache& kernels, const KernelRequest& request, const HostStandIn& stand_in) {
  Device& device = kernels.device();
  ForeignKernel kernel = device.driver().is_cpu() ? load_kernel(device, {}, request.name, stand_in)
                                                  : load_kernel(device, kernels.image(request), request.name, stand_in);
  if (request.allow_shared != 0) kernel.allow_shared(request.allow_shared);
  return kernel;
}

}  // namespace nodewright
