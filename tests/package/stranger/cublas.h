// The part of cuBLAS that this project calls, from whatever libcublas the machine has.
#pragma once

#include <dlfcn.h>
#include <nodewright/nodewright.h>

#include <stdexcept>
#include <string>

namespace stranger {

class Cublas {
 public:
  Cublas() {
    constexpr const char* kFiles[] = {"libcublas.so.13", "libcublas.so.12"};
    for (const std::string& place : nodewright::cuda_library_places(kFiles, "STRANGER_CUBLAS"))
      if (library_ = dlopen(place.c_str(), RTLD_NOW); library_ != nullptr) break;
    if (library_ == nullptr) throw std::runtime_error("no libcublas on this machine");
    load(create_, "cublasCreate_v2");
    load(destroy_, "cublasDestroy_v2");
    load(set_stream_, "cublasSetStream_v2");
    load(saxpy_, "cublasSaxpy_v2");
    check(create_(&handle_), "cublasCreate");
  }
  ~Cublas() { destroy_(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // y += a * x
  void saxpy(CUstream stream, int n, float a, const float* x, float* y) const {
    check(set_stream_(handle_, stream), "cublasSetStream");
    check(saxpy_(handle_, n, &a, x, 1, y, 1), "cublasSaxpy");
  }

 private:
  template <class Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("libcublas lacks ") + name);
  }
  static void check(int status, const char* call) {
    if (status != 0) throw std::runtime_error(call + (" failed with status " + std::to_string(status)));
  }

  void* library_ = nullptr;
  void* handle_ = nullptr;
  int (*create_)(void**) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*set_stream_)(void*, CUstream) = nullptr;
  int (*saxpy_)(void*, int, const float*, const float*, int, float*, int) = nullptr;
};

}  // namespace stranger
