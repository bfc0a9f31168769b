// A kernel image in memory: an ELF shared object with the descriptor of emulation.h. Not a CUDA object yet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels_src/field_visit.h"
#include "runtime/cpu_driver/kernel_abi.h"

namespace nodewright::cpu {

struct KernelField {
  std::string name;
  uint32_t offset, bytes;
  Role role;
  uint32_t element_bytes;
};

class KernelImage {
 public:
  // Null: these bytes are no image of this driver's ABI. Reads as many bytes as their ELF header says.
  static std::unique_ptr<KernelImage> load(const void* code);
  ~KernelImage();
  KernelImage(const KernelImage&) = delete;
  KernelImage& operator=(const KernelImage&) = delete;

  std::string name;
  void (*entry)(const void*) = nullptr;
  uint32_t args_bytes = 0, max_threads = 0;
  bool waits = false, checked = false;
  std::vector<KernelField> fields;
  uint64_t mapped_begin = 0, mapped_end = 0;  // of the loaded object

 private:
  KernelImage() = default;
  void* library_ = nullptr;
};

}  // namespace nodewright::cpu
