#include "runtime/kernels/library.h"

#include <utility>

#include "runtime/context_guard.h"
#include "runtime/moved_into.h"

namespace nodewright {

Library::Library(Device& device, std::string name, std::span<const std::byte> image)
    : device_(&device), name_(std::move(name)) {
  const ContextGuard current(device);
  Driver& driver = device.driver();
  driver.check(driver.cuLibraryLoadData(&library_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
               "cuLibraryLoadData", "load kernel image", name_,
               std::to_string(image.size()) + " bytes onto " + device.name() + ", compute capability " +
                   std::to_string(device.properties().cc_major) + "." + std::to_string(device.properties().cc_minor));
}

Library::~Library() { release(); }

Library::Library(Library&& other) noexcept
    : device_(other.device_), name_(std::move(other.name_)), library_(std::exchange(other.library_, nullptr)) {}

Library& Library::operator=(Library&& other) noexcept { return moved_into(*this, std::move(other)); }

void Library::release() noexcept {
  if (library_ == nullptr) return;
  const ContextGuard current(*device_, std::nothrow);
  device_->driver().cuLibraryUnload(std::exchange(library_, nullptr));
}

CUkernel Library::kernel(const std::string& kernel) const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  CUkernel found = nullptr;
  driver.check(driver.cuLibraryGetKernel(&found, library_, kernel.c_str()), "cuLibraryGetKernel", "find kernel", kernel,
               "in image '" + name_ + "'", "name the kernel as its file");
  return found;
}

}  // namespace nodewright
