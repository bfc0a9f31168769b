#include "runtime/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr std::string_view kEntryNames[] = {
#define NODEWRIGHT_ENTRY(name, ...) #name,
    NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY) NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
};
static_assert(std::size(kEntryNames) == static_cast<size_t>(DriverEntry::kCount));

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
  if (failed) return {kFile};
  const std::filesystem::path folder = program.parent_path();
  // The last is a bare name: what the program was linked to search, as an installed package has it (nodewrightConfig).
  return {folder / "lib" / kFile, folder / kFile, folder.parent_path() / "lib" / kFile,
          folder.parent_path() / "lib" / "nodewright" / kFile, kFile};
}

}  // namespace

std::string_view entry_name(DriverEntry entry) { return kEntryNames[static_cast<size_t>(entry)]; }

struct Driver::Cpu {
  CpuDriverOptions options;
  decltype(&nodewright_cpu_label) label;
  decltype(&nodewright_cpu_name_buffer) name_buffer;
  decltype(&nodewright_cpu_report) report;
  decltype(&nodewright_cpu_clear_error) clear_error;
  decltype(&nodewright_cpu_set_condition) set_condition;
};

std::unique_ptr<Driver> Driver::load_cuda() { return load_cuda_from("libcuda.so.1"); }

std::unique_ptr<Driver> Driver::load_cuda_from(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error({.doing = "load the CUDA driver",
                 .object = path,
                 .detail = "no NVIDIA driver on this machine (" + last_dl_error() + ")",
                 .advice = "install the NVIDIA driver, or " + std::string(kUseCpuDriver)});
  std::unique_ptr<Driver> driver(new Driver(library, path));
  driver->load_cuda_entries();
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
    driver->load_cpu_entries();
    driver->open_cpu_extensions(options);
    return driver;
  }
  throw Error({.doing = "load the CPU driver",
               .object = "libnodewright_cpu_driver.so",
               .detail = tried,
               .advice = "set NODEWRIGHT_CPU_DRIVER to its path, or keep lib/ beside the program"});
}

Driver::Driver(void* library, std::string path) : library_(library), path_(std::move(path)) {
#define NODEWRIGHT_ENTRY(entry, ...) this->entry.observer_ = &observer_;
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY) NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
}

Driver::~Driver() = default;

void* Driver::symbol(const char* name) const { return dlsym(library_, name); }

// Asks the library for its version and for every entry, and says what is wrong with it.
void Driver::load_cuda_entries() {
  using GetVersion = CUresult (*)(int*);
  const auto refuse = [&](const std::string& detail, const std::string& words, const std::string& advice) {
    throw Error({.doing = "load the CUDA driver",
                 .object = path_,
                 .detail = detail,
                 .driver = words,
                 .advice = advice + std::string(kUseCpuDriver)});
  };
  const auto get_version = reinterpret_cast<GetVersion>(symbol("cuDriverGetVersion"));
  const CUresult result = get_version != nullptr ? get_version(&version_) : CUDA_SUCCESS;
  if (result == CUDA_ERROR_STUB_LIBRARY)
    refuse("this file is the CUDA toolkit's stub, which only serves to link",
           "cuDriverGetVersion: " + result_name(result) + " (34)",
           "take the toolkit's stubs folder out of LD_LIBRARY_PATH, or ");
  if (result != CUDA_SUCCESS) refuse("it does not tell its version", "cuDriverGetVersion: " + result_name(result), "");
  const std::string have =
      "driver is for CUDA " + version_text(version_) + ", CUDA " + version_text(kDriverVersionNeeded) + " is needed";
  constexpr const char* kUpdate = "update the NVIDIA driver to 580 or later, or ";
  if (get_version == nullptr) refuse("it lacks cuDriverGetVersion", "", kUpdate);
  if (symbol("cuGetProcAddress_v2") == nullptr) refuse("it lacks cuGetProcAddress_v2; " + have, "", kUpdate);
  if (version_ < kDriverVersionNeeded) refuse(have, "", kUpdate);
  if (const char* missing = load_entries(version_of_form); missing != nullptr)
    refuse(std::string("it lacks the entry ") + missing + "; " + have, "", kUpdate);
}

// The CPU driver is built from the same cuda.h: its table holds the forms that this header declares.
void Driver::load_cpu_entries() {
  const char* missing = symbol("cuGetProcAddress_v2") == nullptr
                            ? "cuGetProcAddress_v2"
                            : load_entries([](std::string_view) { return kDriverVersionNeeded; });
  if (missing != nullptr)
    throw Error({.doing = "load the CPU driver",
                 .object = path_,
                 .detail = std::string("it lacks the entry ") + missing,
                 .advice = "build the program and its CPU driver from the same sources"});
  cuDriverGetVersion.call_(&version_);
}

// Through cuGetProcAddress, which hands out the form of each entry that the version asked for defines, whatever newer
// forms the driver has. Returns the name of the first entry that the library lacks, or null.
const char* Driver::load_entries(int (*version_of)(std::string_view)) {
  using GetAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto get_address = reinterpret_cast<GetAddress>(symbol("cuGetProcAddress_v2"));
  const char* missing = nullptr;
  const auto find = [&](const char* name, int version) -> void* {
    void* address = nullptr;
    auto status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = get_address(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? address : nullptr;
  };
  const auto load = [&](const char* name) {
    void* const address = find(name, version_of(name));
    if (address == nullptr && missing == nullptr) missing = name;
    return address;
  };
#define NODEWRIGHT_ENTRY(entry) entry.call_ = reinterpret_cast<decltype(entry.call_)>(load(#entry));
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
#define NODEWRIGHT_ENTRY(entry, version, parameters) \
  entry.call_ = reinterpret_cast<decltype(entry.call_)>(find(#entry, version));
  NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
  return missing;
}

void Driver::open_cpu_extensions(const CpuDriverOptions& options) {
  const auto load = [&]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(symbol(name));
    if (function == nullptr)
      throw Error({.doing = "load the CPU driver", .object = path_, .detail = std::string("it lacks ") + name});
  };
  decltype(&nodewright_cpu_configure) configure = nullptr;
  auto cpu = std::make_unique<Cpu>(Cpu{options, nullptr, nullptr, nullptr, nullptr, nullptr});
  load(configure, "nodewright_cpu_configure");
  load(cpu->label, "nodewright_cpu_label");
  load(cpu->name_buffer, "nodewright_cpu_name_buffer");
  load(cpu->report, "nodewright_cpu_report");
  load(cpu->clear_error, "nodewright_cpu_clear_error");
  load(cpu->set_condition, "nodewright_cpu_set_condition");
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

void Driver::name_buffer(CUdeviceptr address, const std::string& name) const {
  if (cpu_ != nullptr) cpu_->name_buffer(address, name.c_str());
}

void Driver::set_condition(CUgraphConditionalHandle handle, unsigned value) const {
  const std::string object = std::to_string(handle);
  if (cpu_ == nullptr)
    throw Error({.doing = "set condition",
                 .object = object,
                 .detail = "only stand-ins on the CPU driver set conditions on the host",
                 .advice = "call cudaGraphSetConditional in the kernel"});
  check(static_cast<CUresult>(cpu_->set_condition(handle, value)), "nodewright_cpu_set_condition", "set condition",
        object, "no graph that lives has this handle");
}

CUcontext Driver::current_context() const {
  CUcontext current = nullptr;
  return cuCtxGetCurrent.call_(&current) == CUDA_SUCCESS ? current : nullptr;
}

void Driver::clear_cpu_error() const {
  if (cpu_ != nullptr) cpu_->clear_error();
}

std::vector<Driver::OptionalEntry> Driver::optional_entries() const {
  return {
#define NODEWRIGHT_ENTRY(name, version, ...) {#name, version, static_cast<bool>(name)},
      NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
  };
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
