#include "runtime/compilers/nvrtc.h"

#include <dlfcn.h>

#include <sstream>

#include "runtime/error.h"
#include "runtime/libraries/cuda_library_places.h"

#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#else  // a machine with cuda.h alone: the few declarations used, as CUDA 13.0's nvrtc.h has them
extern "C" {
typedef enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 } nvrtcResult;
typedef struct _nvrtcProgram* nvrtcProgram;
const char* nvrtcGetErrorString(nvrtcResult);
nvrtcResult nvrtcVersion(int*, int*);
nvrtcResult nvrtcCreateProgram(nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*);
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t*);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char*);
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t*);
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*);
}
#endif

#define NODEWRIGHT_NVRTC_ENTRIES(X) \
  X(nvrtcGetErrorString)            \
  X(nvrtcVersion)                   \
  X(nvrtcCreateProgram)             \
  X(nvrtcDestroyProgram)            \
  X(nvrtcCompileProgram) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)

namespace nodewright {
namespace {

constexpr const char* kNvrtcFiles[] = {"libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"};
constexpr int kLogLines = 6;

// NVRTC opens libnvrtc-builtins.so.<version> by its bare name at the first compilation, and pip's wheels are not on the
// loader's path. Once it is loaded from NVRTC's own folder, that name finds it. Never closed, as NVRTC itself.
void load_builtins_beside(const std::string& place) {
  const size_t slash = place.rfind('/');
  if (slash == std::string::npos) return;  // the loader found NVRTC, and will find this
  for (const std::string& file : files_matching(place.substr(0, slash + 1) + "libnvrtc-builtins.so.*"))
    dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string first_lines(const std::string& log) {
  std::istringstream lines(log);
  std::string text;
  int count = 0;
  for (std::string line; std::getline(lines, line) && count < kLogLines;) {
    if (line.find_first_not_of(" \t^~") == std::string::npos) continue;  // the line that points at a column
    text += (count++ == 0 ? "" : " | ") + line.substr(line.find_first_not_of(" \t"));
  }
  return text;
}

}  // namespace

struct Nvrtc::Table {
  void* library = nullptr;  // never closed: the compiler keeps state of its own
#define NODEWRIGHT_ENTRY(name) decltype(&::name) name = nullptr;
  NODEWRIGHT_NVRTC_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
};

std::vector<std::string> Nvrtc::candidates() { return cuda_library_places(kNvrtcFiles, "NODEWRIGHT_NVRTC"); }

std::unique_ptr<Nvrtc> Nvrtc::load() {
  std::string tried;
  const auto refused = [&](const std::string& why) { tried += (tried.empty() ? "" : "; ") + why; };
  for (const std::string& place : candidates()) {
    auto table = std::make_unique<Table>();
    table->library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (table->library == nullptr) {
      const char* why = dlerror();
      refused(why != nullptr ? why : place);
      continue;
    }
    const char* missing = nullptr;
#define NODEWRIGHT_ENTRY(name)                                                         \
  table->name = reinterpret_cast<decltype(table->name)>(dlsym(table->library, #name)); \
  if (table->name == nullptr && missing == nullptr) missing = #name;
    NODEWRIGHT_NVRTC_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
    if (missing == nullptr) {
      load_builtins_beside(place);
      return std::unique_ptr<Nvrtc>(new Nvrtc(std::move(table), place));
    }
    refused(place + " lacks " + missing);
  }
  throw Error(
      {.doing = "load NVRTC, which compiles the kernels",
       .object = "libnvrtc.so.13",
       .detail = tried,
       .advice = "pip install nvidia-cuda-nvrtc, install the CUDA toolkit, or set NODEWRIGHT_NVRTC to its path"});
}

Nvrtc::Nvrtc(std::unique_ptr<Table> table, std::string path) : table_(std::move(table)), path_(std::move(path)) {
  table_->nvrtcVersion(&major_, &minor_);
}

Nvrtc::~Nvrtc() = default;

NvrtcResult Nvrtc::compile(const NvrtcSource& source, std::span<const std::string> options) const {
  std::vector<const char*> texts, paths, words;
  for (const NvrtcHeader& header : source.headers) {
    texts.push_back(header.text.c_str());
    paths.push_back(header.path.c_str());
  }
  for (const std::string& option : options) words.push_back(option.c_str());

  nvrtcProgram program = nullptr;
  NvrtcResult made;
  const auto check = [&](nvrtcResult result, const char* call) {
    if (result == NVRTC_SUCCESS) return;
    table_->nvrtcDestroyProgram(&program);
    throw Error({.doing = "compile kernel source",
                 .object = source.path,
                 .detail = first_lines(made.log),
                 .driver = std::string(call) + ": " + table_->nvrtcGetErrorString(result) + ", NVRTC " +
                           std::to_string(major_) + "." + std::to_string(minor_)});
  };
  check(table_->nvrtcCreateProgram(&program, source.text.c_str(), source.path.c_str(), static_cast<int>(texts.size()),
                                   texts.data(), paths.data()),
        "nvrtcCreateProgram");
  const nvrtcResult compiled = table_->nvrtcCompileProgram(program, static_cast<int>(words.size()), words.data());
  size_t bytes = 0;
  if (table_->nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
    made.log.resize(bytes);
    table_->nvrtcGetProgramLog(program, made.log.data());
    made.log.resize(bytes - 1);  // the log's closing zero
  }
  check(compiled, "nvrtcCompileProgram");
  check(table_->nvrtcGetCUBINSize(program, &bytes), "nvrtcGetCUBINSize");
  made.cubin.resize(bytes);
  check(table_->nvrtcGetCUBIN(program, reinterpret_cast<char*>(made.cubin.data())), "nvrtcGetCUBIN");
  table_->nvrtcDestroyProgram(&program);
  return made;
}

std::vector<std::string> nvrtc_options(int cc_major, int cc_minor, Spills spills) {
  std::string target = "sm_" + std::to_string(cc_major) + std::to_string(cc_minor);
  if (target == "sm_90") target += 'a';  // with the instructions of warpgroups, which no other target has
  std::vector<std::string> options = {
      "--std=c++20", "--gpu-architecture=" + target,
      "--device-as-default-execution-space",  // so that constexpr host functions of x.h can be called
      "--ptxas-options=--warn-on-spills"};
  if (spills == Spills::refused) options.push_back("--ptxas-options=-Werror");
  return options;
}

}  // namespace nodewright
