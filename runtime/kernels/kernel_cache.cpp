#include "runtime/kernels/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/compilers/host_compiler.h"
#include "runtime/compilers/nvrtc.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/host/parallel.h"
#include "runtime/kernels/kernel_parameters.h"
#include "runtime/kernels/kernel_waits.h"
#include "runtime/kernels/library.h"

namespace nodewright {
namespace {

constexpr std::string_view kCpuOnlyFolder = "cpu_driver/";

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string shape_text(const LaunchShape& shape) {
  const auto triple = [](const unsigned(&v)[3]) {
    return std::to_string(v[0]) + "x" + std::to_string(v[1]) + "x" + std::to_string(v[2]);
  };
  const std::string text = "grid " + triple(shape.grid) + ", block " + triple(shape.block) + ", " +
                           std::to_string(shape.shared_bytes) + " shared bytes";
  return shape.cluster_blocks() == 1 ? text : text + ", cluster " + triple(shape.cluster);
}

}  // namespace

struct KernelCache::Entry {
  Library library;
  LoadedKernel kernel;
};

struct KernelCache::Source {
  KernelProgram program;
  Digest key{};
  KernelWaits waits;
  bool is_known = false;  // false where the request has no source
};

// One compiler for one device. Made when a kernel is first asked for, so that a run whose kernels are all loaded needs
// none; its identity is part of every key, so that even a disk hit needs the compiler's version.
struct KernelCache::Compiler {
  explicit Compiler(const Device& device) : on_cpu(device.driver().is_cpu()) {
    if (on_cpu) {
      checked = device.driver().cpu_options().check_accesses;
      identity = host_compiler_identity() + (checked ? " checked" : "");
      return;
    }
    nvrtc = Nvrtc::load();
    options = nvrtc_options(device.properties().cc_major, device.properties().cc_minor);
    identity = "nvrtc " + std::to_string(nvrtc->major()) + "." + std::to_string(nvrtc->minor());
    for (const std::string& option : options) identity += " " + option;
  }

  KernelProgram program(const KernelRequest& request, std::span<const EmbeddedSource> extra) const {
    return program_of(request, extra, on_cpu ? std::string_view() : kCpuOnlyFolder);
  }

  std::vector<std::byte> compile(const KernelRequest& request, const Source& from, const ImageStore& store) const {
    const KernelProgram& program = from.program;
    if (on_cpu) {
      HostCompileRequest host{.kernel = request.name,
                              .sources = {},
                              .prelude = program.prelude,
                              .checked = checked,
                              .extra = {},
                              .keep = store.problem().empty() ? store.folder() : std::filesystem::path()};
      for (const std::string& folder : program.include_folders)
        host.extra.push_back("-I" + std::filesystem::absolute(folder).string());
      host.sources.emplace(program.source.path, program.source.text);
      for (const EmbeddedSource& header : program.headers) host.sources.emplace(header.path, header.text);
      return compile_for_cpu(host);
    }
    const std::string path(program.source.path);
    NvrtcSource source{path, program.prelude + "#line 1 \"" + path + "\"\n" + std::string(program.source.text), {}};
    if (from.waits.for_inputs) source.text += demand_of_macro(request.name);
    for (const EmbeddedSource& header : program.headers)
      source.headers.push_back({std::string(header.path), std::string(header.text)});
    std::vector<std::string> all = options;
    for (const std::string& folder : program.include_folders) all.push_back("--include-path=" + folder);
    return nvrtc->compile(source, all).cubin;
  }

  bool on_cpu;
  bool checked = false;
  std::unique_ptr<Nvrtc> nvrtc;
  std::vector<std::string> options;
  std::string identity;
};

KernelCache::KernelCache(Device& device, std::filesystem::path folder)
    : KernelCache(device, KernelCacheOptions{.folder = std::move(folder), .extra_sources = {}, .progress = {}}) {}

KernelCache::KernelCache(Device& device, KernelCacheOptions options)
    : device_(device),
      options_(std::move(options)),
      store_(options_.folder.empty() ? ImageStore::default_folder() : options_.folder) {
  stats_.disk_problem = store_.problem();
}

KernelCache::~KernelCache() = default;

const LoadedKernel& KernelCache::get(const KernelRequest& request) {
  const LoadedKernel& kernel = loaded(request);
  if (request.allow_shared != 0) allow_shared(kernel, request.allow_shared);
  return kernel;
}

const LoadedKernel& KernelCache::loaded(const KernelRequest& request) {
  const std::string key = to_string(request);
  if (const LoadedKernel* kernel = find_loaded(key)) return *kernel;
  const auto start = std::chrono::steady_clock::now();
  const Source source = source_of(request);
  const LoadedKernel& kernel = keep(key, load(request, source, image(request, source)));
  const std::lock_guard lock(mutex_);
  stats_.ms += ms_since(start);
  return kernel;
}

std::vector<std::byte> KernelCache::image(const KernelRequest& request) { return image(request, source_of(request)); }

std::vector<std::byte> KernelCache::image(const KernelRequest& request, const Source& source) {
  if (std::optional<std::vector<std::byte>> image = image_on_disk(request, source)) return *std::move(image);
  if (options_.compiles) options_.compiles(1);
  return compiled_image(request, source);
}

std::string KernelCache::add(const EmbeddedSource& source) {
  const std::string name = std::filesystem::path(source.path).stem().string();
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = "add the source of kernel",
                 .object = name,
                 .detail = std::move(detail),
                 .advice = "give the kernel a name of its own"});
  };
  const std::lock_guard lock(mutex_);
  for (const EmbeddedSource& other : options_.extra_sources) {
    const std::string_view kernel = kernel_name_of(source.path);
    if (other.path != source.path && (kernel.empty() || kernel_name_of(other.path) != kernel)) continue;
    if (other.text == source.text) return name;
    refuse("another text is called " + std::string(other.path) + " already");
  }
  for (const auto& [key, entry] : loaded_)
    if (entry->kernel.name == name) refuse("a kernel of that name is loaded already, from another source");
  options_.extra_sources.push_back(source);
  return name;
}

std::vector<EmbeddedSource> KernelCache::extra_sources() const {
  const std::lock_guard lock(mutex_);
  return options_.extra_sources;
}

void KernelCache::prepare(std::span<const KernelRequest> requests) { prepare(requests, Failures::thrown); }

void KernelCache::prepare_what_compiles(std::span<const KernelRequest> requests) {
  prepare(requests, Failures::left_out);
}

void KernelCache::prepare(std::span<const KernelRequest> requests, Failures what_of_failures) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<const KernelRequest*> missing;
  std::set<std::string> seen;
  for (const KernelRequest& request : requests)
    if (seen.insert(to_string(request)).second && find_loaded(to_string(request)) == nullptr)
      missing.push_back(&request);
  if (missing.empty()) return;

  std::vector<std::optional<std::vector<std::byte>>> images(missing.size());
  std::vector<Source> sources(missing.size());
  std::mutex progress_mutex;
  size_t done = 0;
  const auto tell = [&](size_t i) {
    const std::lock_guard lock(progress_mutex);
    ++done;
    if (options_.progress) options_.progress(done, missing.size(), to_string(*missing[i]));
  };
  const auto for_all = [&](std::span<const size_t> indices, const auto& work) {
    in_parallel(indices.size(), usable_threads(), [&](size_t k) {
      const size_t i = indices[k];
      try {
        work(i);
      } catch (const Error&) {
        if (what_of_failures == Failures::thrown) throw;
        return;
      }
      if (images[i]) tell(i);
    });
  };
  std::vector<size_t> all(missing.size()), absent;
  std::iota(all.begin(), all.end(), size_t{0});
  for_all(all, [&](size_t i) {
    sources[i] = source_of(*missing[i]);
    images[i] = image_on_disk(*missing[i], sources[i]);
  });
  std::ranges::copy_if(all, std::back_inserter(absent), [&](size_t i) { return !images[i] && sources[i].is_known; });
  if (!absent.empty() && options_.compiles) options_.compiles(absent.size());
  for_all(absent, [&](size_t i) { images[i] = compiled_image(*missing[i], sources[i]); });
  // Loading is driver calls, in the order of the requests and on this thread: a trace repeats from run to run.
  for (size_t i = 0; i < missing.size(); ++i)
    if (images[i]) keep(to_string(*missing[i]), load(*missing[i], sources[i], *images[i]));
  const std::lock_guard lock(mutex_);
  stats_.ms += ms_since(start);
}

const LoadedKernel* KernelCache::find_loaded(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(key);
  return found == loaded_.end() ? nullptr : &found->second->kernel;
}

// The first to come stays, if two threads loaded the same kernel at once.
const LoadedKernel& KernelCache::keep(const std::string& key, std::unique_ptr<Entry> entry) {
  const std::lock_guard lock(mutex_);
  return loaded_.try_emplace(key, std::move(entry)).first->second->kernel;
}

// This and the next two make no driver call, so that any thread may.
KernelCache::Source KernelCache::source_of(const KernelRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    if (compiler_ == nullptr) compiler_ = std::make_unique<Compiler>(device_);
  }
  Source source{.program = compiler_->program(request, extra_sources())};
  source.key = hash_of(source.program, compiler_->identity);
  source.waits = waits_of(source.program);
  source.is_known = true;
  return source;
}

std::optional<std::vector<std::byte>> KernelCache::image_on_disk(const KernelRequest& request, const Source& source) {
  ImageStore::Read read = store_.read(request.name, source.key);
  const std::lock_guard lock(mutex_);
  if (read.found == ImageStore::Found::damaged || read.found == ImageStore::Found::untrusted) ++stats_.disk_rejects;
  if (read.found == ImageStore::Found::untrusted && !std::exchange(told_not_trusted_, true) && options_.not_trusted)
    options_.not_trusted(read.problem);
  if (read.found != ImageStore::Found::yes) return std::nullopt;
  ++stats_.disk_hits;
  return std::move(read.image);
}

std::vector<std::byte> KernelCache::compiled_image(const KernelRequest& request, const Source& source) {
  std::vector<std::byte> image;
  try {
    image = compiler_->compile(request, source, store_);
  } catch (const Error& error) {
    Error::Parts parts = error.parts();
    if (to_string(request) != request.name) parts.object += " as " + to_string(request);
    throw Error(parts);
  }
  const std::string problem = store_.write(request.name, source.key, image);
  const std::lock_guard lock(mutex_);
  ++stats_.compiled;
  if (!problem.empty()) {
    ++stats_.disk_failures;
    stats_.disk_problem = problem;
    if (!std::exchange(told_not_kept_, true) && options_.not_kept) options_.not_kept(problem);
  }
  return image;
}

std::unique_ptr<KernelCache::Entry> KernelCache::load(const KernelRequest& request, const Source& source,
                                                      std::span<const std::byte> image) {
  const ContextGuard current(device_);
  Driver& driver = device_.driver();
  const std::string object = to_string(request);
  auto entry = std::make_unique<Entry>(Entry{Library(device_, object, image), {}});
  LoadedKernel& kernel = entry->kernel;
  kernel.name = request.name;
  kernel.request = request;
  kernel.device = &device_;
  kernel.kernel = entry->library.kernel(request.name);
  driver.check(driver.cuKernelGetFunction(&kernel.function, kernel.kernel), "cuKernelGetFunction", "load kernel",
               object);
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    driver.check(driver.cuKernelGetAttribute(&value, which, kernel.kernel, device_.get()), "cuKernelGetAttribute",
                 "read a property of kernel", object, "attribute " + std::to_string(which));
    return value;
  };
  kernel.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.spill_bytes = static_cast<uint64_t>(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  kernel.static_shared_bytes = static_cast<uint64_t>(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  kernel.max_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  const std::vector<KernelParameter> parameters =
      driver.is_cpu() ? parameters_of(driver, kernel.function, object) : parameters_in(image, kernel.name);
  if (parameters.size() != 1)
    throw Error({.doing = "load kernel",
                 .object = object,
                 .detail = parameters.empty()
                               ? "it takes no parameter"
                               : "it takes a second parameter, of " + std::to_string(parameters[1].bytes) + " bytes",
                 .advice = "give the kernel exactly one argument struct, or launch it as a ForeignKernel"});
  kernel.args_bytes = parameters[0].bytes;
  if (device_.properties().has_clusters())  // of more than 8 blocks, which not every device of 9.0 need take
    driver.check(driver.cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                 "cuFuncSetAttribute", "allow large clusters of kernel", object);
  if (!device_.properties().has_programmatic_launch()) return entry;
  kernel.waits_for_inputs = source.waits.for_inputs;
  kernel.releases_after_wait = source.waits.releases_after;
  return entry;
}

void KernelCache::allow_shared(const LoadedKernel& kernel, unsigned bytes) {
  if (kernel.static_shared_bytes + bytes <= kSharedBytesWithoutAsking) return;
  const std::lock_guard lock(mutex_);
  unsigned& allowed = shared_allowed_[kernel.function];
  if (bytes <= allowed) return;
  allow_dynamic_shared(device_, kernel, bytes);
  allowed = bytes;
}

void allow_dynamic_shared(Device& device, const LoadedKernel& kernel, unsigned bytes) {
  const ContextGuard current(device);
  Driver& driver = device.driver();
  const uint64_t most = device.properties().shared_optin_bytes;
  const std::string_view doing = "reserve shared memory for kernel", advice = "launch it with less shared memory";
  const std::string detail = "needs " + std::to_string(bytes) + " dynamic and " +
                             std::to_string(kernel.static_shared_bytes) + " static bytes a block, " + device.name() +
                             " has " + std::to_string(most);
  if (kernel.static_shared_bytes + bytes > most)
    throw Error({.doing = std::string(doing), .object = kernel.name, .detail = detail, .advice = std::string(advice)});
  driver.check(driver.cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         static_cast<int>(bytes)),
               "cuFuncSetAttribute", doing, kernel.name, detail, advice);
}

unsigned allowed_dynamic_shared(const LoadedKernel& kernel) {
  const ContextGuard current(*kernel.device);
  const Driver& driver = kernel.device->driver();
  int bytes = 0;
  driver.check(driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.function),
               "cuFuncGetAttribute", "read a property of kernel", kernel.name);
  return static_cast<unsigned>(bytes);
}

KernelCache::Stats KernelCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void check_kernel(const LoadedKernel& kernel, uint64_t args_bytes, const LaunchShape& shape) {
  const auto refuse = [&](const std::string& detail, const char* advice) {
    throw Error({.doing = "use kernel", .object = kernel.name, .detail = detail, .advice = advice});
  };
  if (kernel.args_bytes != args_bytes)
    refuse("its argument struct has " + std::to_string(kernel.args_bytes) + " bytes in the built code and " +
               std::to_string(args_bytes) + " here",
           "name the kernel that takes this struct");
  if (shape.blocks() == 0 || shape.threads() == 0 || shape.grid[1] > 65535 || shape.grid[2] > 65535)
    refuse(shape_text(shape), "give every dimension at least 1, and grid y and z at most 65535");
  if (kernel.max_threads > 0 && shape.threads() > static_cast<unsigned>(kernel.max_threads))
    refuse(shape_text(shape) + "; the kernel runs with at most " + std::to_string(kernel.max_threads) + " threads",
           "launch it with the number of threads that its header names");
}

}  // namespace nodewright
