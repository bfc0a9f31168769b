// A shared object goes through an anonymous file and dlopen, so that nothing is left on disk.
#include "cpu_driver/kernel_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cpu_driver/blocks/block_runner.h"

namespace nodewright::cpu {
namespace {

constexpr uint32_t kMostThreadsOfBlock = 1024;  // CUDA C++ Programming Guide, "Technical specifications"

// The size of the ELF file at `code`: its section headers come last. 0: no ELF shared object of this machine.
size_t image_bytes(const void* code) {
  Elf64_Ehdr header;
  memcpy(&header, code, EI_NIDENT);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  memcpy(&header, code, sizeof header);
  if (header.e_machine != EM_X86_64 || header.e_type != ET_DYN || header.e_shentsize != sizeof(Elf64_Shdr)) return 0;
  return header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
}

void* open_in_memory(const void* code, size_t bytes) {
  const int file = memfd_create("nodewright_kernel", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  const char* from = static_cast<const char*>(code);
  size_t left = bytes;
  while (left > 0) {
    const ssize_t written = write(file, from, left);
    if (written <= 0) break;
    from += written;
    left -= static_cast<size_t>(written);
  }
  // dlopen returns an object that it already has under the same name, and file numbers come back: so every load gets
  // its own spelling of the path, with slashes and dots that mean nothing.
  static std::atomic<uint32_t> serial{0};
  std::string path = "/proc/self/fd/";
  for (uint32_t bits = serial++; bits != 0; bits >>= 1) path += (bits & 1) != 0 ? "./" : "/";
  path += std::to_string(file);
  void* library = left == 0 ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  close(file);
  return library;
}

struct Extent {
  uint64_t base, begin = ~0ull, end = 0;
};

Extent mapped_extent(void* library) {
  struct link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {0, 0, 0};
  Extent extent{map->l_addr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& extent = *static_cast<Extent*>(data);
        if (info->dlpi_addr != extent.base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          const uint64_t begin = extent.base + segment.p_vaddr, end = begin + segment.p_memsz;
          if (begin < extent.begin) extent.begin = begin;
          if (end > extent.end) extent.end = end;
        }
        return 1;
      },
      &extent);
  return extent;
}

}  // namespace

std::unique_ptr<KernelImage> KernelImage::of_host_function(const CpuHostKernel& kernel) {
  std::unique_ptr<KernelImage> image(new KernelImage);
  image->name = kernel.name;
  image->parameters.assign(kernel.parameters, kernel.parameters + kernel.parameter_count);
  for (const CpuKernelParameter& parameter : image->parameters)
    image->args_bytes = std::max(image->args_bytes, parameter.offset + parameter.bytes);
  image->max_threads = kMostThreadsOfBlock;
  image->waits = true;  // it is called when all before it has completed
  image->function_ = kernel.copy(kernel.function);
  image->run_ = kernel.run;
  image->release_ = kernel.release;
  return image;
}

std::unique_ptr<KernelImage> KernelImage::load(const void* code) {
  static const CpuHostKernel host{};
  if (memcmp(code, host.magic, sizeof host.magic) == 0)
    return of_host_function(*static_cast<const CpuHostKernel*>(code));
  const size_t bytes = image_bytes(code);
  if (bytes == 0) return nullptr;
  std::unique_ptr<KernelImage> image(new KernelImage);
  image->library_ = open_in_memory(code, bytes);
  if (image->library_ == nullptr) return nullptr;
  const auto* descriptor = static_cast<const emulation::Descriptor*>(dlsym(image->library_, "nodewright_cpu_kernel"));
  if (descriptor == nullptr || descriptor->abi_version != emulation::kAbiVersion) return nullptr;
  *descriptor->hooks = block_hooks();
  image->name = descriptor->name;
  image->entry = descriptor->entry;
  image->args_bytes = descriptor->args_bytes;
  image->parameters = {{0, descriptor->args_bytes}};
  image->max_threads = descriptor->max_threads;
  image->checked = descriptor->checked != 0;
  image->waits = descriptor->waits_begin != descriptor->waits_end;
  std::vector<emulation::FieldRecord> records(64);
  records.resize(descriptor->fields(records.data(), static_cast<uint32_t>(records.size())));
  for (const emulation::FieldRecord& record : records) {
    const auto role = static_cast<Role>(record.role);
    image->fields.push_back({record.name, record.offset, record.bytes, role, record.element_bytes});
    image->meets_peers |= role == Role::peer_out || role == Role::peer_in;
  }
  const Extent extent = mapped_extent(image->library_);
  image->mapped_begin = extent.begin;
  image->mapped_end = extent.end;
  return image;
}

KernelImage::~KernelImage() {
  if (library_ != nullptr) dlclose(library_);
  if (function_ != nullptr) release_(function_);
}

}  // namespace nodewright::cpu
