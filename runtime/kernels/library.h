// A loaded module: a cubin on CUDA, a host shared object on the CPU driver. Owns its kernels.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/device.h"

namespace nodewright {

class Library {
 public:
  // Loads `image`; the driver copies it. Throws Error with `name` and the image's size.
  Library(Device& device, std::string name, std::span<const std::byte> image);
  ~Library();
  Library(Library&& other) noexcept;
  Library& operator=(Library&& other) noexcept;

  CUlibrary get() const { return library_; }
  const std::string& name() const { return name_; }
  // The kernel called `kernel`; valid as long as the library. Throws Error when the image has none.
  CUkernel kernel(const std::string& kernel) const;

 private:
  void release() noexcept;

  Device* device_;
  std::string name_;
  CUlibrary library_ = nullptr;
};

}  // namespace nodewright
