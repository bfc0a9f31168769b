// A kernel written beside the code that launches it, for programs with few kernels of their own. Its argument struct is
// written once and read by the host's compiler and by NVRTC.
//
//   NODEWRIGHT_ARGS(Swish, { In<float> x; Out<float> y; float beta; })   // in a namespace of yours, or in none
//   const InlineKernel swish("swish", kSwishText, R"(NODEWRIGHT_KERNEL(swish, Swish, 128) { ... })");
//   kernels.kernel<Swish>(swish, shape);
#pragma once

#include <string>
#include <string_view>

#include "kernels_src/args.h"
#include "kernels_src/kernel_sources.h"

// The struct and its text, k<Name>Text, in the namespace where this stands. Inside the struct the vocabulary of args.h
// needs no nodewright::, and nothing else of Nodewright is visible there that is not visible around it.
#define NODEWRIGHT_ARGS(Name, ...)                                            \
  namespace args_of_##Name {                                                  \
    using ::nodewright::Frozen, ::nodewright::In, ::nodewright::Settled;      \
    using ::nodewright::SettledInOut, ::nodewright::Out, ::nodewright::InOut; \
    using ::nodewright::PartialOut;                                           \
    using ::nodewright::Optional, ::nodewright::Condition;                    \
    using ::nodewright::bf16, ::nodewright::fp16;                             \
    struct Name __VA_ARGS__;                                                  \
  }                                                                           \
  using args_of_##Name::Name;                                                 \
  inline constexpr ::std::string_view k##Name##Text = "struct " #Name " " #__VA_ARGS__ ";";

namespace nodewright {

// The source of one kernel; must outlive the KernelCache that it is given to. The text sees the dialect
// (kernels_src/device/dialect.cuh) and the struct.
class InlineKernel {
 public:
  // `args_text`: the k<Name>Text of NODEWRIGHT_ARGS. `kernel_text`: the NODEWRIGHT_KERNEL called `name`.
  InlineKernel(std::string_view name, std::string_view args_text, std::string_view kernel_text)
      : path_("kernels_src/" + std::string(name) + ".cu"),
        text_("#include \"kernels_src/device/dialect.cuh\"\nnamespace nodewright {\n" + std::string(args_text) +
              "\n}\n" + std::string(kernel_text) + "\n") {}
  InlineKernel(const InlineKernel&) = delete;
  InlineKernel& operator=(const InlineKernel&) = delete;

  // For KernelCache, and a kernel with constants: kernels.add(swish), then kernels.kernel<Swish>({"swish", {...}},
  // shape).
  operator EmbeddedSource() const { return {path_, text_}; }

 private:
  std::string path_, text_;
};

}  // namespace nodewright
