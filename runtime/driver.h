// The driver as a table of callables, one per entry of driver_entries.h, loaded at run time from libcuda.so.1 or from
// Nodewright's CPU driver. Includes no policy: it calls, and it turns a bad result into one Error.
//
//   auto driver = Driver::load_cuda();
//   driver->check(driver->cuMemAlloc(&address, bytes), "cuMemAlloc", "allocate device memory", name);
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/calls/driver_entries.h"

static_assert(CUDA_VERSION >= 12080, "Nodewright needs the headers of CUDA 12.8 or later");

namespace nodewright {

struct CpuDriverOptions;  // runtime/calls/cpu_driver_api.h

// What errors advise where CUDA cannot be had (runtime/device_selection.h).
inline constexpr std::string_view kUseCpuDriver = "use open_device(\"cpu\"), the CPU driver";

// The CUDA version whose entry points are asked for, and the oldest driver that has them all.
inline constexpr int kDriverVersionNeeded = CUDA_VERSION < 13000 ? 12080 : 13000;

// The type of each entry in the form of CUDA 13. The headers of CUDA 12 have some of these forms under another name;
// there a name declared here, and defined nowhere, hides cuda.h's.
namespace driver_detail {
#if CUDA_VERSION < 13000
decltype(::cuGraphAddNode_v2) cuGraphAddNode;
decltype(::cuGraphAddDependencies_v2) cuGraphAddDependencies;
decltype(::cuGraphRemoveDependencies_v2) cuGraphRemoveDependencies;
decltype(::cuGraphGetEdges_v2) cuGraphGetEdges;
#endif
#define NODEWRIGHT_ENTRY(name) using form_of_##name = decltype(&name);
NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
#define NODEWRIGHT_ENTRY(name, version, parameters) using form_of_##name = CUresult(*) parameters;
NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
}  // namespace driver_detail

// One value an entry of NODEWRIGHT_DRIVER_ENTRIES, then one an entry of NODEWRIGHT_OPTIONAL_ENTRIES, by its name;
// kCount is how many there are.
enum class DriverEntry : uint16_t {
#define NODEWRIGHT_ENTRY(name, ...) name,
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY) NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
      kCount
};

// The name as a caller writes it: "cuMemAlloc", not "cuMemAlloc_v2".
std::string_view entry_name(DriverEntry entry);

// The CUDA version to ask cuGetProcAddress for, so that it gives the form of `entry` that cuda.h declares.
constexpr int version_of_form(std::string_view entry) {
  // CUDA 13.0 added forms that take a context; cuda.h kept the names for the forms without.
  return entry == "cuCtxSynchronize" || entry == "cuCtxGetDevice" ? 12000 : kDriverVersionNeeded;
}

// "CUDA_ERROR_OUT_OF_MEMORY" without asking a driver; "CUresult 12345" for a value that cuda.h does not name.
std::string result_name(CUresult result);

// One call as an observer sees it.
struct DriverCall {
  DriverEntry entry;                // which
  std::string_view name;            // entry_name() of it
  std::span<const uint64_t> words;  // the arguments in order: pointers, addresses, handles and integers, widened
  uint32_t address_mask = 0;        // bit i: words[i] is a pointer, a handle or a device address (printed in hex)
  mutable uint64_t note = 0;        // the observer's own, kept from before() to after()
};

// Sees every call of a Driver, from any thread. Must outlive the driver or be taken off with observe(nullptr).
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // A value: the driver is not called and the caller gets that value.
  virtual std::optional<CUresult> before(const DriverCall& call) = 0;
  // What the caller gets instead of `result`. Also called with the value that before() returned.
  virtual CUresult after(const DriverCall& call, CUresult result) = 0;
};

// One callable entry. Arguments convert as in a direct call.
template <class Pointer, DriverEntry kEntry>
class DriverFunction;

// An entry with the parameters P.
template <class... P, DriverEntry kEntry>
class DriverFunction<CUresult (*)(P...), kEntry> {
 public:
  // Whether the driver has it: only the entries of NODEWRIGHT_OPTIONAL_ENTRIES may be missing.
  explicit operator bool() const { return call_ != nullptr; }

  // Calls the driver, through the observer where there is one.
  CUresult operator()(P... args) const {
    if (*observer_ == nullptr) return call_(args...);
    const uint64_t words[sizeof...(P) + 1] = {word(args)..., 0};
    const DriverCall call{kEntry, entry_name(kEntry), {words, sizeof...(P)}, kAddressMask};
    const std::optional<CUresult> instead = (*observer_)->before(call);
    return (*observer_)->after(call, instead ? *instead : call_(args...));
  }

 private:
  friend class Driver;

  template <class T>
  static constexpr bool kIsAddress = std::is_pointer_v<T> || std::is_same_v<T, CUdeviceptr>;
  static constexpr uint32_t kAddressMask = [] {
    uint32_t mask = 0, bit = 1;
    ((mask |= kIsAddress<P> ? bit : 0, bit <<= 1), ...);
    return mask;
  }();

  template <class T>
  static uint64_t word(T value) {
    if constexpr (std::is_pointer_v<T>)
      return reinterpret_cast<uint64_t>(value);
    else
      return static_cast<uint64_t>(value);
  }

  CUresult (*call_)(P...) = nullptr;
  CallObserver* const* observer_ = nullptr;
};

// Never unloaded. Calls may come from several threads, as CUDA allows.
class Driver {
 public:
  // Opens libcuda.so.1. Throws Error that says which of these it was: no driver on this machine, the toolkit's stub, a
  // driver older than CUDA 13.0, or an entry it lacks.
  static std::unique_ptr<Driver> load_cuda();

  // The same from another file, for tests: a stub, a driver that lacks an entry.
  static std::unique_ptr<Driver> load_cuda_from(const std::string& path);

  // Opens libnodewright_cpu_driver.so: the file $NODEWRIGHT_CPU_DRIVER names, or else the first of lib/, ./, ../lib/
  // and ../lib/nodewright/ beside the executable, or else where the executable was linked to search. Throws Error with
  // the places looked at.
  static std::unique_ptr<Driver> load_cpu(const CpuDriverOptions& options);

  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // From now on every call passes through `observer`; null for direct calls. Not while another thread calls.
  void observe(CallObserver* observer) { observer_ = observer; }
  CallObserver* observer() const { return observer_; }

  bool is_cpu() const { return cpu_ != nullptr; }  // the CPU driver
  // The options it was loaded with. Only for the CPU driver.
  const CpuDriverOptions& cpu_options() const;
  int version() const { return version_; }           // as cuDriverGetVersion: 13000 is CUDA 13.0
  const std::string& path() const { return path_; }  // the shared library

  // Throws Error unless `result` is CUDA_SUCCESS. The driver's words are the call, the result's name and its text,
  // and what the CPU driver reported. `doing` completes "cannot ...".
  void check(CUresult result, std::string_view call, std::string_view doing, std::string_view object,
             std::string_view detail = {}, std::string_view advice = {}) const;

  // What check() puts in an Error as the driver's words.
  std::string words(CUresult result, std::string_view call) const;

  // The entries of NODEWRIGHT_OPTIONAL_ENTRIES.
  struct OptionalEntry {
    std::string_view name;  // "cuGraphGetId"
    int version = 0;        // of CUDA, that has brought it: 13010 is 13.1
    bool present = false;   // this driver has it
  };
  std::vector<OptionalEntry> optional_entries() const;

  // The CPU driver uses `node_name` in its reports for the next launch or added node of this thread. No-op on CUDA.
  void label(std::string_view node_name) const;
  // Names the buffer that starts there in the CPU driver's reports; nothing on a GPU.
  void name_buffer(CUdeviceptr address, const std::string& name) const;

  // Sets a condition as cudaGraphSetConditional does in a kernel: for stand-ins, on the CPU driver. Throws Error for a
  // handle that no graph has, and on CUDA.
  void set_condition(CUgraphConditionalHandle handle, unsigned value) const;

  // The context that is current on this thread, or null. No observer sees the call: every entry of the library begins
  // with it.
  CUcontext current_context() const;

  // Forgets a sticky error of the CPU driver, as a new process would. No-op on CUDA, where only a new process helps.
  void clear_cpu_error() const;

#define NODEWRIGHT_ENTRY(name, ...) DriverFunction<driver_detail::form_of_##name, DriverEntry::name> name;
  NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY)
  NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY

 private:
  struct Cpu;  // options and extension functions of the CPU driver

  Driver(void* library, std::string path);
  void* symbol(const char* name) const;
  void load_cuda_entries();
  void load_cpu_entries();
  const char* load_entries(int (*version_of)(std::string_view entry));
  void open_cpu_extensions(const CpuDriverOptions& options);
  std::string cpu_report() const;

  void* library_;  // of dlopen; never closed: drivers leave threads and exit handlers behind
  std::string path_;
  int version_ = 0;
  CallObserver* observer_ = nullptr;
  std::unique_ptr<Cpu> cpu_;
};

}  // namespace nodewright
