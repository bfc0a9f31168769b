// A kernel image in memory: an ELF shared object with the descriptor of emulation.h, or a function of the program. Not
// a CUDA object yet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu_driver/kernel_abi.h"
#include "kernels_src/field_visit.h"
#include "runtime/calls/cpu_driver_api.h"

namespace nodewright::cpu {

struct KernelField {
  std::string name;
  uint32_t offset, bytes;
  Role role;
  uint32_t element_bytes;
};

class KernelImage {
 public:
  // Null: these bytes are no image of this driver's ABI. Reads as many bytes as their ELF header says, or a
  // CpuHostKernel.
  static std::unique_ptr<KernelImage> load(const void* code);
  ~KernelImage();
  KernelImage(const KernelImage&) = delete;
  KernelImage& operator=(const KernelImage&) = delete;

  std::string name;
  void (*entry)(const void*) = nullptr;
  std::vector<CpuKernelParameter> parameters;  // of a shared object: its one argument struct
  uint32_t args_bytes = 0, max_threads = 0;
  bool waits = false, checked = false;
  bool meets_peers = false;  // has a PeerOut or PeerIn field
  std::vector<KernelField> fields;
  uint64_t mapped_begin = 0, mapped_end = 0;  // of the loaded object

  // A function of the program does the work of the whole grid; `entry` is null.
  bool is_host_function() const { return entry == nullptr; }
  const char* run_host_function(const void* arguments) const { return run_(function_, arguments); }

 private:
  KernelImage() = default;
  static std::unique_ptr<KernelImage> of_host_function(const CpuHostKernel& kernel);

  void* library_ = nullptr;
  void* function_ = nullptr;
  const char* (*run_)(const void*, const void*) = nullptr;
  void (*release_)(void*) = nullptr;
};

}  // namespace nodewright::cpu
