// What a kernel's text says of its waiting, and what the compiled code does on every path to the kernel's end.
#include "runtime/kernels/kernel_waits.h"

#include <gtest/gtest.h>

#include "runtime/compilers/cubin_reader.h"
#include "runtime/error.h"
#include "tests/runtime/kernels/ptx_paths.h"
#include "tests/runtime/kernels/small_kernels.h"

namespace nodewright {
namespace {

constexpr std::string_view kBeginning =
    "#include \"kernels_src/scale.h\"\n#include \"kernels_src/device/dialect.cuh\"\n";
constexpr std::string_view kFirst = "release_dependents(); const int i = static_cast<int>(threadIdx.x); ";
constexpr std::string_view kWork = "args.y.data[i] = args.x.data[i]; ";

std::string with_body(std::string_view body) {
  return std::string(kBeginning) + "NODEWRIGHT_KERNEL(scale, Scale, 128) {" + std::string(body) + "}\n";
}
std::string waits_then_works() { return "wait_for_inputs(); " + std::string(kWork); }

// The program of a kernel "scale" of this text.
KernelProgram program_with(const std::string& text, std::string_view header = kScaleHeader) {
  const EmbeddedSource sources[] = {{"kernels_src/scale.h", header}, {"kernels_src/scale.cu", text}};
  return program_of({"scale", {}}, sources, "cpu_driver/");
}
KernelWaits waits_with(const std::string& body) {
  const std::string text = with_body(body);
  return waits_of(program_with(text));
}

NvrtcSource scale_source(const std::string& text) {
  const KernelProgram program = program_with(text);
  NvrtcSource source{"scale.cu", program.prelude + text, {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  return source;
}

bool may_end_unwaited(const std::string& text) { return test::may_end_unwaited(test::ptx_of(scale_source(text))); }

TEST(KernelWaits, AKernelWaitsIfItsMacroAndItsCallAreThere) {
  EXPECT_TRUE(waits_with(waits_then_works()).for_inputs);
  EXPECT_FALSE(waits_with(std::string(kWork)).for_inputs) << "it never does";
  EXPECT_FALSE(waits_with("// wait_for_inputs();\n" + std::string(kWork)).for_inputs);
  EXPECT_FALSE(waits_with("my_wait_for_inputs(); wait_for_inputs_of(args);").for_inputs);
  EXPECT_TRUE(waits_with("// my_wait_for_inputs\n wait_for_inputs();").for_inputs);
  EXPECT_FALSE(waits_with("asm(\"exit;\"); wait_for_inputs();").for_inputs) << "ends beside the macro's end";
  const std::string own =
      std::string(kBeginning) + "extern \"C\" __global__ void scale(Scale args) {" + waits_then_works() + "}\n";
  EXPECT_FALSE(waits_of(program_with(own)).for_inputs) << "not the macro's";
  const std::string header = std::string(kScaleHeader) + "inline void wait_for_all() { wait_for_inputs(); }\n";
  EXPECT_TRUE(waits_of(program_with(with_body("wait_for_all();"), header)).for_inputs);
}

TEST(KernelWaits, AKernelReleasesAfterTheWaitIfNothingInItsTextDoesSoBefore) {
  EXPECT_TRUE(waits_with(waits_then_works()).releases_after) << "when it ends";
  EXPECT_TRUE(waits_with("wait_for_inputs(); release_behind_wait();").releases_after);
  EXPECT_FALSE(waits_with("release_behind_wait();").releases_after) << "it is not known to wait for its inputs";
  for (const char* way : {"release_dependents();", "asm(\"griddepcontrol.launch_dependents;\");",
                          "cudaTriggerProgrammaticLaunchCompletion();"})
    EXPECT_FALSE(waits_with("wait_for_inputs(); " + std::string(way)).releases_after) << way;
  const std::string text = with_body(waits_then_works());
  KernelProgram program = program_with(text);
  program.include_folders = {"/usr/include"};
  EXPECT_FALSE(waits_of(program).releases_after) << "what lies there is not read";
  const std::string header = std::string(kScaleHeader) + "#define RELEASE release_dependents()\n";
  EXPECT_FALSE(waits_of(program_with(with_body("RELEASE; wait_for_inputs();"), header)).releases_after);
}

TEST(KernelWaits, TheKernelOfAnotherMacroIsRefused) {
  const std::string text = with_body(std::string(kFirst) + waits_then_works()) +
                           "extern \"C\" __global__ void other(const __grid_constant__ nodewright::Scale args) {}\n";
  const auto nvrtc = Nvrtc::load();
  EXPECT_NO_THROW(nvrtc->compile(scale_source(text + demand_of_macro("scale")), nvrtc_options(9, 0)));
  try {
    nvrtc->compile(scale_source(text + demand_of_macro("other")), nvrtc_options(9, 0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("other_body"), std::string::npos) << error.what();
  }
}

// The three kernels of which the library once believed that they wait on every path, since their code holds a wait.
TEST(KernelWaits, NoThreadEndsWithoutHavingWaited) {
  const std::string first(kFirst), wait = waits_then_works();
  for (const std::string& body :
       {first + wait,                                                                //
        first + "if (i >= args.count) return; " + wait,                              // an early return
        first + "if (i >= args.count) { args.y.data[i] = 0; } else {" + wait + "}",  // one arm of an if
        first + "for (int64_t k = 0; k < args.count; ++k) {" + wait + "}",           // a loop, perhaps of no turns
        first + "if (i == 7) { release_behind_wait(); return; }" + wait,             //
        first + std::string(kWork)})                                                 // no wait at all
    EXPECT_FALSE(may_end_unwaited(with_body(body))) << body;
}

TEST(KernelWaits, TheSameWithoutTheMacroEndsWithoutHavingWaited) {
  const auto own = [](const std::string& body) {
    return std::string(kBeginning) + "extern \"C\" __global__ void scale(const __grid_constant__ Scale args) {" +
           "start_unwaited();" + std::string(kFirst) + body + "}\n";
  };
  EXPECT_FALSE(may_end_unwaited(own(waits_then_works())));
  EXPECT_TRUE(may_end_unwaited(own("if (i >= args.count) return; " + waits_then_works())));
  EXPECT_TRUE(may_end_unwaited(own("if (i >= args.count) { args.y.data[i] = 0; } else {" + waits_then_works() + "}")));
  EXPECT_TRUE(may_end_unwaited(own("for (int64_t k = 0; k < args.count; ++k) {" + waits_then_works() + "}")));
}

// ptxas keeps track of the predicate that says so, and leaves the second wait out.
TEST(KernelWaits, AKernelThatWaitsOnEveryPathWaitsOnceInItsCode) {
  const auto nvrtc = Nvrtc::load();
  const auto waits_of_body = [&](const std::string& body) {
    return read_cubin(nvrtc->compile(scale_source(with_body(body)), nvrtc_options(9, 0)).cubin, "scale").at(0).waits;
  };
  const std::string first(kFirst), late_return = "if (i >= args.count) return; ";
  EXPECT_EQ(waits_of_body(first + "wait_for_inputs(); " + late_return + std::string(kWork)), 1);
  EXPECT_EQ(waits_of_body(first + "wait_for_inputs(); release_behind_wait(); " + std::string(kWork)), 1);
  EXPECT_EQ(waits_of_body(first + late_return + waits_then_works()), 2);
}

}  // namespace
}  // namespace nodewright
