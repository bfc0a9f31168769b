#include "runtime/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "runtime/cpu_driver/cpu_driver_api.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr std::string_view kEntryNames[] = {
#define NODEWRIGHT_ENTRY(name) #name,
    NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
};
static_assert(std::size(kEntryNames) == static_cast<size_t>(DriverEntry::kCount));

// The exported symbol that cuda.h maps the name to: "cuMemAlloc_v2". The extra step lets the macro expand first.
#define NODEWRIGHT_TEXT(name) #name
#define NODEWRIGHT_SYMBOL(name) NODEWRIGHT_TEXT(name)

constexpr const char* kUseCpu = "run with --device cpu to use the CPU driver";

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string last_dl_error() {
  const char* words = dlerror();
  return words != nullptr ? words : "no reason given";
}

std::vector<std::filesystem::path> cpu_driver_candidates() {
  if (const char* named = std::getenv("NODEWRIGHT_CPU_DRIVER"); named != nullptr && *named != '\0') return {named};
  constexpr const char* kFile = "libnodewright_cpu_driver.so";
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return {};
  const std::filesystem::path folder = program.parent_path();
  return {folder / "lib" / kFile, folder / kFile, folder.parent_path() / "lib" / kFile,
          folder.parent_path() / "lib" / "nodewright" / kFile};
}

}  // namespace

std::string_view entry_name(DriverEntry entry) { return kEntryNames[static_cast<size_t>(entry)]; }

struct Driver::Cpu {
  CpuDriverOptions options;
  decltype(&nodewright_cpu_label) label;
  decltype(&nodewright_cpu_report) report;
  decltype(&nodewright_cpu_clear_error) clear_error;
};

std::unique_ptr<Driver> Driver::load_cuda() { return load_cuda_from("libcuda.so.1"); }

std::unique_ptr<Driver> Driver::load_cuda_from(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error({.doing = "load the CUDA driver",
                 .object = path,
                 .detail = "no NVIDIA driver on this machine (" + last_dl_error() + ")",
                 .advice = std::string("install the NVIDIA driver, or ") + kUseCpu});
  std::unique_ptr<Driver> driver(new Driver(library, path));
  driver->load_entries_by_version();
  return driver;
}

std::unique_ptr<Driver> Driver::load_cpu(const CpuDriverOptions& options) {
  const std::vector<std::filesystem::path> candidates = cpu_driver_candidates();
  std::string tried;
  for (const std::filesystem::path& candidate : candidates) {
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += (tried.empty() ? "" : "; ") + last_dl_error();
      continue;
    }
    std::unique_ptr<Driver> driver(new Driver(library, candidate.string()));
    driver->load_entries_by_name();
    driver->open_cpu_extensions(options);
    return driver;
  }
  throw Error({.doing = "load the CPU driver",
               .object = "libnodewright_cpu_driver.so",
               .detail = tried,
               .advice = "set NODEWRIGHT_CPU_DRIVER to its path, or keep lib/ beside the program"});
}

Driver::Driver(void* library, std::string path) : library_(library), path_(std::move(path)) {
#define NODEWRIGHT_ENTRY(entry) this->entry.observer_ = &observer_;
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
}

Driver::~Driver() = default;

void* Driver::symbol(const char* name) const { return dlsym(library_, name); }

// libcuda.so.1: through cuGetProcAddress, which hands out the form of each entry that CUDA 13.0 defines, whatever newer
// forms the driver has.
void Driver::load_entries_by_version() {
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  using GetVersion = CUresult (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(symbol("cuDriverGetVersion"));
  const auto get_address = reinterpret_cast<GetProcAddress>(symbol("cuGetProcAddress_v2"));
  if (get_version != nullptr) {
    const CUresult result = get_version(&version_);
    if (result == CUDA_ERROR_STUB_LIBRARY)
      throw Error({.doing = "load the CUDA driver",
                   .object = path_,
                   .detail = "this file is the CUDA toolkit's stub, which only serves to link",
                   .driver = "cuDriverGetVersion: CUDA_ERROR_STUB_LIBRARY (34)",
                   .advice = std::string("take the toolkit's stubs folder out of LD_LIBRARY_PATH, or ") + kUseCpu});
    if (result != CUDA_SUCCESS)
      throw Error({.doing = "load the CUDA driver",
                   .object = path_,
                   .detail = "it does not tell its version",
                   .driver = "cuDriverGetVersion: " + result_name(result),
                   .advice = kUseCpu});
  }
  const std::string have =
      "driver is for CUDA " + version_text(version_) + ", CUDA " + version_text(kDriverVersionNeeded) + " is needed";
  const std::string advice = std::string("update the NVIDIA driver to 580 or later, or ") + kUseCpu;
  if (get_version == nullptr || get_address == nullptr)
    throw Error({.doing = "load the CUDA driver",
                 .object = path_,
                 .detail = std::string("it lacks ") +
                           (get_version == nullptr ? "cuDriverGetVersion" : "cuGetProcAddress_v2") + "; " + have,
                 .advice = advice});
  if (version_ < kDriverVersionNeeded)
    throw Error({.doing = "load the CUDA driver", .object = path_, .detail = have, .advice = advice});

  const auto load = [&](const char* name) {
    void* address = nullptr;
    auto status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = get_address(name, &address, version_of_form(name), CU_GET_PROC_ADDRESS_DEFAULT, &status);
    if (result != CUDA_SUCCESS || address == nullptr || status != CU_GET_PROC_ADDRESS_SUCCESS)
      throw Error({.doing = "load the CUDA driver",
                   .object = path_,
                   .detail = std::string("it lacks the entry ") + name + "; " + have,
                   .driver = "cuGetProcAddress: " + result_name(result),
                   .advice = advice});
    return address;
  };
#define NODEWRIGHT_ENTRY(entry) entry.call_ = reinterpret_cast<decltype(entry.call_)>(load(#entry));
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
}

// The CPU driver is built with this program from the same header: its symbols are the header's.
void Driver::load_entries_by_name() {
  const auto load = [&](const char* name) {
    void* address = symbol(name);
    if (address == nullptr)
      throw Error({.doing = "load the CPU driver",
                   .object = path_,
                   .detail = std::string("it lacks the entry ") + name,
                   .advice = "build the program and its CPU driver from the same sources"});
    return address;
  };
#define NODEWRIGHT_ENTRY(entry) entry.call_ = reinterpret_cast<decltype(entry.call_)>(load(NODEWRIGHT_SYMBOL(entry)));
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
  cuDriverGetVersion.call_(&version_);
}

void Driver::open_cpu_extensions(const CpuDriverOptions& options) {
  const auto load = [&]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(symbol(name));
    if (function == nullptr)
      throw Error({.doing = "load the CPU driver", .object = path_, .detail = std::string("it lacks ") + name});
  };
  decltype(&nodewright_cpu_configure) configure = nullptr;
  auto cpu = std::make_unique<Cpu>(Cpu{options, nullptr, nullptr, nullptr});
  load(configure, "nodewright_cpu_configure");
  load(cpu->label, "nodewright_cpu_label");
  load(cpu->report, "nodewright_cpu_report");
  load(cpu->clear_error, "nodewright_cpu_clear_error");
  const auto result = static_cast<CUresult>(configure(&options));
  check(result, "nodewright_cpu_configure", "configure the CPU driver", path_, {},
        result == CUDA_ERROR_ALREADY_MAPPED
            ? "close every device of the CPU driver before opening one with other options"
            : "name options within their ranges");
  cpu->clear_error();
  cpu_ = std::move(cpu);
}

const CpuDriverOptions& Driver::cpu_options() const { return cpu_->options; }

std::string Driver::words(CUresult result, std::string_view call) const {
  std::string text = std::string(call) + ": ";
  const char* name = nullptr;
  const char* meaning = nullptr;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr)
    text += name;
  else
    text += result_name(result);
  text += " (" + std::to_string(static_cast<int>(result)) + ")";
  if (cuGetErrorString(result, &meaning) == CUDA_SUCCESS && meaning != nullptr) text += std::string(", ") + meaning;
  return text + cpu_report();
}

std::string Driver::cpu_report() const {
  if (cpu_ == nullptr) return {};
  std::string report(cpu_->report(nullptr, 0), '\0');
  if (report.empty()) return {};
  report.resize(report.size() + 1);
  cpu_->report(report.data(), report.size());
  report.pop_back();
  return ", " + report;
}

void Driver::label(std::string_view node_name) const {
  if (cpu_ != nullptr) cpu_->label(std::string(node_name).c_str());
}

void Driver::clear_cpu_error() const {
  if (cpu_ != nullptr) cpu_->clear_error();
}

void Driver::check(CUresult result, std::string_view call, std::string_view doing, std::string_view object,
                   std::string_view detail, std::string_view advice) const {
  if (result == CUDA_SUCCESS) return;
  throw Error({.doing = std::string(doing),
               .object = std::string(object),
               .detail = std::string(detail),
               .driver = words(result, call),
               .advice = std::string(advice)});
}

}  // namespace nodewright
