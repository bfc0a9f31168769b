// Kernels that Nodewright has not compiled, with any number and type of parameters: borrowed from another owner, or
// loaded from a cubin, a fatbin or PTX. runtime/kernels/cuda_symbol.h takes them from a program that nvcc has built.
//
//   const ForeignKernel scale = load_kernel_file(device, "scale.cubin", "scale", scale_on_host);
//   g.launch("scale", scale, launch_shape_1d(n, 256), n, 2.0f, updates(x));
#pragma once

#include <cuda.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "runtime/device.h"
#include "runtime/host_stand_in.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

// Must outlive every plan and graph that launches it. Moving it does not move what plans refer to. Read-only once made
// and allowed its shared memory: any thread may launch it.
class ForeignKernel {
 public:
  ForeignKernel(ForeignKernel&&) noexcept;
  ForeignKernel& operator=(ForeignKernel&&) noexcept;
  ~ForeignKernel();

  const std::string& name() const { return loaded().name; }  // what reports call it
  // Properties and parameters as the driver reads them from the code.
  const LoadedKernel& loaded() const;

  // Lets it be launched with `bytes` of dynamic shared memory, which more than 48 KiB need; what was allowed before
  // stays. Throws Error with the device's limit.
  void allow_shared(unsigned bytes);

 private:
  friend ForeignKernel borrow_kernel(Device&, CUfunction, std::string, const HostStandIn&);
  friend ForeignKernel borrow_kernel(Device&, CUkernel, std::string, const HostStandIn&);
  friend ForeignKernel load_kernel(Device&, std::span<const std::byte>, const std::string&, const HostStandIn&);

  struct State;
  ForeignKernel(Device& device, std::string name);
  static ForeignKernel of_stand_in(Device& device, std::string name, const HostStandIn& stand_in);
  void load(std::span<const std::byte> image);
  void take(CUkernel kernel);
  void take(CUfunction function);

  std::unique_ptr<State> state_;
};

// Borrows a kernel from its owner, who keeps it loaded. Reports call it `name`. Throws Error when the driver does not
// know it, and on the CPU driver, where the handle is not looked at, when there is no stand-in.
ForeignKernel borrow_kernel(Device& device, CUfunction function, std::string name, const HostStandIn& stand_in = {});
ForeignKernel borrow_kernel(Device& device, CUkernel kernel, std::string name, const HostStandIn& stand_in = {});

// The kernel called `symbol` (as the file has it: extern "C", or mangled) of a cubin, a fatbin or PTX text; the driver
// copies the image. On the CPU driver the image is not looked at. Throws Error with the names and what the driver said.
ForeignKernel load_kernel(Device& device, std::span<const std::byte> image, const std::string& symbol,
                          const HostStandIn& stand_in = {});
ForeignKernel load_kernel_file(Device& device, const std::filesystem::path& file, const std::string& symbol,
                               const HostStandIn& stand_in = {});

// The kernel that `kernels` compiles with NVRTC from its source <name>.cu, in or below kernels_src/: any CUDA that
// holds `extern "C" __global__ void <name>(...)`, with the request's defines, headers, folders and constants, which lie
// in namespace nodewright. On the CPU driver nothing is compiled.
ForeignKernel compile_kernel(KernelCache& kernels, const KernelRequest& request, const HostStandIn& stand_in = {});

}  // namespace nodewright
