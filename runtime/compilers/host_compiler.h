// Builds a kernel's .cu source for the CPU driver with the host compiler: the counterpart of NVRTC. Knows no cache.
//
//   std::vector<std::byte> image = compile_for_cpu({.kernel = "rms_norm", .sources = sources, .prelude = constants});
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

struct HostCompileRequest {
  std::string kernel;                               // one of the sources is <kernel>.cu, in or below kernels_src/
  std::map<std::string, std::string_view> sources;  // path as in #include "..." -> text; dialect and emulation included
  std::string prelude;             // before the source: namespace nodewright { constexpr long long kCols = 192; }
  bool checked = false;            // call the CPU driver on every load and store (CpuDriverOptions::check_accesses)
  std::vector<std::string> extra;  // further compiler arguments; their paths are absolute
  std::filesystem::path keep;      // a folder in which to keep the dialect as g++ has read it; empty: none
};

// An ELF shared object for cuLibraryLoadData of the CPU driver. Throws Error: no compiler, or the compiler's words.
std::vector<std::byte> compile_for_cpu(const HostCompileRequest& request);

// For a process that is about to end: kills the compilers that run, lets none begin, and waits until their callers have
// removed their folders. compile_for_cpu throws Error from now on. False where some were left after `patience`.
bool stop_compiling(std::chrono::milliseconds patience);

// The compiler that compile_for_cpu uses: $NODEWRIGHT_CXX, or the first of g++, c++, clang++ on the PATH.
// Throws Error with what to install when there is none.
std::string host_compiler_path();

// Path, version, target machine and the options: images of two identities do not mix. Part of the disk cache's key.
std::string host_compiler_identity();

}  // namespace nodewright
