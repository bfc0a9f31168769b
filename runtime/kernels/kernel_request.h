// A request to the kernel cache, and the program text that it stands for: the source, what it includes, and its
// constants. Compiles nothing.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels_src/kernel_sources.h"
#include "kernels_src/launch_shape.h"
#include "runtime/compilers/content_hash.h"

namespace nodewright {

// A type by its name in the program: {"Element", TypeName{"__half"}} becomes `using Element = __half;`.
struct TypeName {
  std::string name;
  bool operator==(const TypeName&) const = default;
};
// Text of the program, such as an enumerator: {"kLayout", Expression{"Layout::rows"}} becomes
// `constexpr auto kLayout = Layout::rows;`.
struct Expression {
  std::string text;  // stands behind the =
  bool operator==(const Expression&) const = default;
};

// An integer of any type is a `long long` in the program.
struct ConstantValue {
  // From the constant's integer value.
  template <std::integral T>
  ConstantValue(T value) : held(static_cast<int64_t>(value)) {}
  ConstantValue(bool value) : held(value) {}
  ConstantValue(float value) : held(value) {}
  ConstantValue(double value) : held(value) {}
  ConstantValue(TypeName value) : held(std::move(value)) {}
  ConstantValue(Expression value) : held(std::move(value)) {}
  bool operator==(const ConstantValue&) const = default;

  std::variant<int64_t, bool, float, double, TypeName, Expression> held;  // the value
};

// Becomes `constexpr long long name = value;`, or bool, float or double, in namespace nodewright, before the first line
// of the kernel's source and after the headers that the request includes.
struct Constant {
  std::string name;
  ConstantValue value;
  bool operator==(const Constant&) const = default;
};

// `#define name value`.
struct Define {
  std::string name, value;  // #define name value
  bool operator==(const Define&) const = default;
};

// Those that a launch shape asks for, then the others.
template <int N>
std::vector<Constant> constants_of(const ShapeConstants<N>& of_shape, const std::vector<Constant>& others) {
  std::vector<Constant> constants;
  for (const auto& [name, value] : of_shape.of) constants.push_back({name, value});
  constants.insert(constants.end(), others.begin(), others.end());
  return constants;
}

// The source <name>.cu, in kernels_src/ or a folder below it, holds exactly the kernel <name>.
struct KernelRequest {
  std::string name;                      // of the file and of the kernel
  std::vector<Constant> constants = {};  // in front of the source
  bool timed = false;  // the form that stamps its blocks' times: takes Timed<Args> (kernels_src/block_stamps.h)
  std::vector<Define> defines = {};               // before all else
  std::vector<std::string> headers = {};          // then `#include <...>` of each: "cuda_fp16.h"
  std::vector<std::string> include_folders = {};  // where the compiler looks: cuda_include_folders() for the toolkit's
  // Bytes of dynamic shared memory that launches and patches may ask for, where a patch is to grow beyond the shape
  // that the kernel is first launched in. No part of the code: requests that differ in it alone share one kernel.
  unsigned allow_shared = 0;
  bool operator==(const KernelRequest&) const = default;
};

// "rms_norm[kHidden=2048]", "rms_norm[kHidden=2048] timed": what errors and reports call a request, and what tells two
// of them apart.
std::string to_string(const KernelRequest& request);

// The text that a request stands for.
struct KernelProgram {
  EmbeddedSource source;                     // the .cu file
  std::vector<EmbeddedSource> headers;       // whatever it includes, directly or not, that is known; sorted by path
  std::string prelude;                       // the constants and the form
  std::vector<std::string> include_folders;  // of the request
  Digest files{};  // of what is included from these folders, as far as plain #include lines say
};

// Looks in `extra` first, then in the embedded sources. Headers under `skipped_folder` (the other device's) are left
// out, with what only they include. Throws Error when there is no such kernel, with the names that there are, and when
// a name is no identifier.
KernelProgram program_of(const KernelRequest& request, std::span<const EmbeddedSource> extra,
                         std::string_view skipped_folder);

// The hash of everything that the compiled image depends on; `compiler` names the compiler, its version and options.
Digest hash_of(const KernelProgram& program, std::string_view compiler);

}  // namespace nodewright
