// The CPU driver's table of entries, small kernels from text, and a context, for the tests of this folder.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernels_src/args.h"
#include "runtime/calls/cpu_driver_api.h"
#include "runtime/calls/driver_entries.h"
#include "runtime/compilers/host_compiler.h"

namespace nodewright {

// Every entry by its name, and the extension functions.
struct Api {
#define NODEWRIGHT_ENTRY(name) decltype(&::name) name = nullptr;
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
#define NODEWRIGHT_ENTRY(name, version, parameters) CUresult(*name) parameters = nullptr;
  NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
  decltype(&nodewright_cpu_configure) configure = nullptr;
  decltype(&nodewright_cpu_label) label = nullptr;
  decltype(&nodewright_cpu_report) report_into = nullptr;
  decltype(&nodewright_cpu_clear_error) clear_error = nullptr;

  std::string report() const {
    char text[2048] = {};
    report_into(text, sizeof text);
    return text;
  }
};

inline const Api& api() {
  static const Api table = [] {
    const char* path = getenv("NODEWRIGHT_CPU_DRIVER");
    void* library = dlopen(path != nullptr ? path : NODEWRIGHT_CPU_DRIVER_PATH, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    Api a;
    CUdriverProcAddressQueryResult status;
#define NODEWRIGHT_ENTRY(name, ...) \
  if (get(#name, reinterpret_cast<void**>(&a.name), 13000, 0, &status) != CUDA_SUCCESS) throw std::runtime_error(#name);
    NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
    NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
    a.configure = reinterpret_cast<decltype(a.configure)>(dlsym(library, "nodewright_cpu_configure"));
    a.label = reinterpret_cast<decltype(a.label)>(dlsym(library, "nodewright_cpu_label"));
    a.report_into = reinterpret_cast<decltype(a.report_into)>(dlsym(library, "nodewright_cpu_report"));
    a.clear_error = reinterpret_cast<decltype(a.clear_error)>(dlsym(library, "nodewright_cpu_clear_error"));
    return a;
  }();
  return table;
}

// What every kernel of these tests may include, by path.
inline const std::map<std::string, std::string>& source_files() {
  static const auto files = [] {
    std::map<std::string, std::string> all;
    const std::filesystem::path root = NODEWRIGHT_SOURCE_DIR;
    for (const char* path :
         {"kernels_src/architecture.h", "kernels_src/args.h", "kernels_src/block_stamps.h", "kernels_src/field_visit.h",
          "kernels_src/device/cluster.cuh", "kernels_src/device/dialect.cuh", "kernels_src/device/numeric.cuh",
          "kernels_src/device/packets.cuh", "cpu_driver/emulation.h"}) {
      std::ifstream file(root / path);
      std::ostringstream text;
      text << file.rdbuf();
      all[path] = text.str();
    }
    return all;
  }();
  return files;
}

// Compiles a kernel named `name`; `text` comes after the include of the dialect. Remembered for the process.
inline const std::vector<std::byte>& image_of(const std::string& name, const std::string& text, bool checked = false) {
  static std::map<std::string, std::vector<std::byte>> images;
  auto& image = images[text + (checked ? "checked" : "")];
  if (image.empty()) {
    const std::string source = "#include \"kernels_src/device/dialect.cuh\"\n" + text;
    HostCompileRequest request{.kernel = name, .prelude = "", .checked = checked};
    for (const auto& [path, contents] : source_files()) request.sources[path] = contents;
    request.sources["kernels_src/" + name + ".cu"] = source;
    image = compile_for_cpu(request);
  }
  return image;
}

#define ASSERT_OK(call) ASSERT_EQ(CUDA_SUCCESS, call) << api().report()
#define EXPECT_OK(call) EXPECT_EQ(CUDA_SUCCESS, call) << api().report()

// A retained primary context with options of the test's choice; everything is given back at the end.
class CpuDriverTest : public testing::Test {
 protected:
  void SetUp() override { start({}); }

  void TearDown() override { stop(); }

  // Begins anew with other options.
  void start(CpuDriverOptions options) {
    stop();
    ASSERT_EQ(CUDA_SUCCESS, api().configure(&options));
    ASSERT_OK(api().cuInit(0));
    ASSERT_OK(api().cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(api().cuCtxSetCurrent(context_));
    ASSERT_OK(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }

  void stop() {
    if (context_ == nullptr) return;
    for (const CUdeviceptr address : memory_) api().cuMemFree(address);
    for (const CUlibrary library : libraries_) api().cuLibraryUnload(library);
    memory_.clear();
    libraries_.clear();
    api().cuStreamDestroy(stream_);
    api().cuDevicePrimaryCtxRelease(0);
    context_ = nullptr;
  }

  CUfunction load(const std::string& name, const std::string& text, bool checked = false) {
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    EXPECT_OK(api().cuLibraryLoadData(&library, image_of(name, text, checked).data(), nullptr, nullptr, 0, nullptr,
                                      nullptr, 0));
    libraries_.push_back(library);
    EXPECT_OK(api().cuLibraryGetKernel(&kernel, library, name.c_str()));
    EXPECT_OK(api().cuKernelGetFunction(&function, kernel));
    return function;
  }

  template <class T>
  T* allocate(size_t count) {
    CUdeviceptr address = 0;
    EXPECT_OK(api().cuMemAlloc(&address, count * sizeof(T)));
    memory_.push_back(address);
    return reinterpret_cast<T*>(address);
  }

  template <class T>
  T* upload(const std::vector<T>& values) {
    T* device = allocate<T>(values.size());
    EXPECT_OK(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(device), values.data(), values.size() * sizeof(T)));
    return device;
  }

  template <class T>
  std::vector<T> download(const T* device, size_t count) {
    std::vector<T> values(count);
    EXPECT_OK(api().cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(device), count * sizeof(T)));
    return values;
  }

  template <class A>
  CUresult launch(CUfunction function, unsigned grid, unsigned block, A args, unsigned shared_bytes = 0,
                  CUstream stream = nullptr) {
    CUlaunchConfig config{};
    config.gridDimX = grid;
    config.blockDimX = block;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shared_bytes;
    config.hStream = stream != nullptr ? stream : stream_;
    void* params[] = {&args};
    return api().cuLaunchKernelEx(&config, function, params, nullptr);
  }

  template <class A>
  CUgraphNode add_kernel(CUgraph graph, CUfunction function, unsigned grid, unsigned block, A args,
                         std::vector<CUgraphNode> after = {}, std::vector<CUgraphEdgeData> edges = {},
                         unsigned shared_bytes = 0) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = function;
    params.kernel.gridDimX = grid;
    params.kernel.blockDimX = block;
    params.kernel.sharedMemBytes = shared_bytes;
    params.kernel.gridDimY = params.kernel.gridDimZ = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    void* pointers[] = {&args};
    params.kernel.kernelParams = pointers;
    CUgraphNode node = nullptr;
    add_result_ =
        api().cuGraphAddNode(&node, graph, after.data(), edges.empty() ? nullptr : edges.data(), after.size(), &params);
    return node;
  }

  CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    EXPECT_OK(api().cuGraphInstantiateWithParams(&exec, graph, &params));
    EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_SUCCESS, params.result_out);
    return exec;
  }

  CUresult synchronize() { return api().cuStreamSynchronize(stream_); }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUresult add_result_ = CUDA_SUCCESS;
  std::vector<CUdeviceptr> memory_;
  std::vector<CUlibrary> libraries_;
};

}  // namespace nodewright
