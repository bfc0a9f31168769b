// What is asked of the kernel cache, and the program text that it stands for: the source, what it includes, and its
// constants. Compiles nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_src/kernel_sources.h"
#include "kernels_src/launch_shape.h"
#include "runtime/content_hash.h"

namespace nodewright {

// Becomes `constexpr long long name = value;` in namespace nodewright, before the first line of the kernel's source.
struct Constant {
  std::string name;
  int64_t value;
  bool operator==(const Constant&) const = default;
};

// Those that a launch shape asks for, then the others.
template <int N>
std::vector<Constant> constants_of(const ShapeConstants<N>& of_shape, const std::vector<Constant>& others) {
  std::vector<Constant> constants;
  for (const auto& [name, value] : of_shape.of) constants.push_back({name, value});
  constants.insert(constants.end(), others.begin(), others.end());
  return constants;
}

// kernels_src/<name>.cu holds exactly the kernel <name>.
struct KernelRequest {
  std::string name;
  std::vector<Constant> constants;
  bool timed = false;  // the form that stamps its blocks' times: takes Timed<Args> (kernels_src/block_stamps.h)
  bool operator==(const KernelRequest&) const = default;
};

// "rms_norm[kHidden=2048]", "rms_norm[kHidden=2048] timed": what errors and reports call a request, and what tells two
// of them apart.
std::string to_string(const KernelRequest& request);

struct KernelProgram {
  EmbeddedSource source;                // the .cu file
  std::vector<EmbeddedSource> headers;  // whatever it includes, directly or not, that is known; sorted by path
  std::string prelude;                  // the constants and the form
};

// Looks in `extra` first, then in the embedded sources. Headers under `skipped_folder` (the other device's) are left
// out, with what only they include. Throws Error when there is no such kernel, with the names that there are, and when
// a name is no identifier.
KernelProgram program_of(const KernelRequest& request, std::span<const EmbeddedSource> extra,
                         std::string_view skipped_folder);

// The hash of everything that the compiled image depends on; `compiler` names the compiler, its version and options.
Digest hash_of(const KernelProgram& program, std::string_view compiler);

}  // namespace nodewright
