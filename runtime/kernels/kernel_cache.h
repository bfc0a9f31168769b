// Kernels by name: compiles their embedded sources for the device at hand, keeps the result on disk, loads it.
//
//   KernelCache kernels(device);
//   kernels.prepare(all_requests);                                      // compiles what is missing, in parallel
//   Kernel<RmsNorm> norm = kernels.kernel<RmsNorm>({"rms_norm", {{"kHidden", 2048}}}, shape);
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels_src/field_visit.h"
#include "kernels_src/launch_shape.h"
#include "runtime/compilers/image_store.h"
#include "runtime/device.h"
#include "runtime/kernels/inline_kernel.h"
#include "runtime/kernels/kernel_request.h"
#include "runtime/kernels/parameter_layout.h"

namespace nodewright {

// A kernel that the driver has loaded, and what is known of its code.
struct LoadedKernel {
  std::string name;               // for reports
  KernelRequest request;          // what it was made from; no name for a kernel that no cache has made
  CUfunction function = nullptr;  // the driver's handles of it: a function,
  CUkernel kernel = nullptr;      // and a kernel, or null
  bool waits_for_inputs = false;  // on every path (runtime/kernels/kernel_waits.h): a programmatic in-edge is allowed
  bool releases_after_wait = false;  // and lets dependents start only after that, or when it ends
  int registers = 0;                 // per thread
  uint64_t spill_bytes = 0;          // per thread: spilled registers and local arrays; meant to be 0
  uint64_t static_shared_bytes = 0;  // per block
  uint64_t args_bytes = 0;           // size of the one argument struct, as the built code sees it; or of all parameters
  // The parameters of a kernel that takes other than one argument struct (runtime/kernels/foreign_kernel.h).
  std::vector<KernelParameter> parameters;
  int max_threads = 0;             // per block
  const Device* device = nullptr;  // that it was loaded on
};

// What a block may have without asking: CUDA C++ programming guide, technical specifications, since compute 2.0.
inline constexpr uint64_t kSharedBytesWithoutAsking = 48 * 1024;

// Lets `kernel` be launched with `bytes` of dynamic shared memory: a driver call, which more than 48 KiB need. Throws
// Error with the device's limit.
void allow_dynamic_shared(Device& device, const LoadedKernel& kernel, unsigned bytes);
// How many bytes it may be launched with now. Asks the driver.
unsigned allowed_dynamic_shared(const LoadedKernel& kernel);

// Options of a cache: its folder, further sources, and functions to call.
struct KernelCacheOptions {
  std::filesystem::path folder = {};  // empty: ImageStore::default_folder()
  // Sources beside the embedded ones, found first: a user's own kernels. The views must outlive the cache.
  std::vector<EmbeddedSource> extra_sources = {};
  // Called after every kernel that prepare() has read or compiled, under a lock, with done, total and
  // to_string(request).
  std::function<void(size_t, size_t, std::string_view)> progress = {};
  // Called before the first compilations of a prepare() or get(), with the number of kernels.
  std::function<void(size_t)> compiles = {};
  // Called once, under a lock, with the reason why compiled kernels are not kept on disk.
  std::function<void(const std::string&)> not_kept = {};
  // Called once, under a lock, with the owner of a file on disk that is not used because somebody else may have written
  // it.
  std::function<void(const std::string&)> not_trusted = {};
};

// A kernel that takes exactly an A, with the shape it is to be launched in.
template <KernelArgs A>
struct Kernel {
  const LoadedKernel* loaded = nullptr;                     // the KernelCache's
  LaunchShape shape;                                        // of every launch
  const std::string& name() const { return loaded->name; }  // for reports
};

// Throws Error unless `kernel`'s argument struct has `args_bytes` bytes and `shape` is one that it can run in.
void check_kernel(const LoadedKernel& kernel, uint64_t args_bytes, const LaunchShape& shape);

// Must outlive the plans and graphs that launch its kernels.
class KernelCache {
 public:
  // Makes no driver call and compiles nothing.
  explicit KernelCache(Device& device, std::filesystem::path folder = {});
  KernelCache(Device& device, KernelCacheOptions options);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // Read from disk or compiled, then loaded; remembered, and valid as long as the cache. Throws Error when there is no
  // such source, when the compiler refuses it, or when the device has less shared memory than the request is to be
  // allowed. Thread-safe.
  const LoadedKernel& get(const KernelRequest& request);

  // get(), as what GraphBuilder::launch takes. Throws Error unless the built code takes an A and can run in `shape`.
  template <KernelArgs A>
  Kernel<A> kernel(const KernelRequest& request, const LaunchShape& shape) {
    const LoadedKernel& loaded = get(request);
    check_kernel(loaded, sizeof(A), shape);
    allow_shared(loaded, shape.shared_bytes);
    return {&loaded, shape};
  }
  // The same of a kernel without constants.
  template <KernelArgs A>
  Kernel<A> kernel(const char* name, const LaunchShape& shape) {
    return kernel<A>(KernelRequest{.name = name}, shape);
  }
  // The same for an inline kernel, which is added first.
  template <KernelArgs A>
  Kernel<A> kernel(const InlineKernel& source, const LaunchShape& shape) {
    return kernel<A>(KernelRequest{.name = add(source)}, shape);
  }

  // A source beside the embedded ones, found first; its text must outlive the cache. Returns the name of its kernel.
  // Adding it again does nothing. Throws Error when another source has the path, or a kernel of the name is loaded.
  // Thread-safe.
  std::string add(const EmbeddedSource& source);

  // get() of all of them, compiling the missing ones in as many threads as the machine has cores.
  void prepare(std::span<const KernelRequest> requests);

  // The same without those that cannot be compiled: get() says why.
  void prepare_what_compiles(std::span<const KernelRequest> requests);

  // The image alone, read from disk or compiled, not loaded. Thread-safe, and makes no driver call.
  std::vector<std::byte> image(const KernelRequest& request);

  // Lets `kernel` be launched with `bytes` of dynamic shared memory. A driver call only the first time that a kernel
  // needs more than 48 KiB; what was allowed before stays. Throws Error with the device's limit.
  void allow_shared(const LoadedKernel& kernel, unsigned bytes);

  // What the cache has done so far.
  struct Stats {
    uint64_t compiled = 0;       // kernels
    uint64_t disk_hits = 0;      // kernels read from disk
    uint64_t disk_rejects = 0;   // files found truncated, damaged, foreign or not trusted, and written anew
    uint64_t disk_failures = 0;  // writes that did not succeed; the kernel works all the same
    double ms = 0;               // wall time spent in get() and prepare() on kernels not yet loaded
    std::string disk_problem;    // why the folder is not used, or the last failure; empty when all is well
  };
  Stats stats() const;  // thread-safe
  // Where the images are kept; empty when the folder cannot be used.
  const std::filesystem::path& folder() const { return store_.folder(); }
  Device& device() const { return device_; }

 private:
  struct Entry;     // one loaded kernel and its library
  struct Compiler;  // NVRTC or the host compiler, opened when first needed

  enum class Failures : uint8_t { thrown, left_out };
  void prepare(std::span<const KernelRequest> requests, Failures failures);
  std::vector<EmbeddedSource> extra_sources() const;
  struct Source;  // of a request, and what its image is called on disk
  Source source_of(const KernelRequest& request);
  std::vector<std::byte> image(const KernelRequest& request, const Source& source);
  std::optional<std::vector<std::byte>> image_on_disk(const KernelRequest& request, const Source& source);
  std::vector<std::byte> compiled_image(const KernelRequest& request, const Source& source);
  std::unique_ptr<Entry> load(const KernelRequest& request, const Source& source, std::span<const std::byte> image);
  const LoadedKernel& loaded(const KernelRequest& request);
  const LoadedKernel* find_loaded(const std::string& key) const;
  const LoadedKernel& keep(const std::string& key, std::unique_ptr<Entry> entry);

  Device& device_;
  KernelCacheOptions options_;
  ImageStore store_;
  std::unique_ptr<Compiler> compiler_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>> loaded_;  // by to_string(request)
  std::map<CUfunction, unsigned> shared_allowed_;         // bytes of dynamic shared memory asked for so far
  Stats stats_;
  bool told_not_kept_ = false, told_not_trusted_ = false;
};

}  // namespace nodewright
