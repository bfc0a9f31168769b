#include "runtime/kernels/kernel_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "runtime/error.h"
#include "tests/runtime/kernels/small_kernels.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

std::vector<std::string> header_paths(const KernelProgram& program) {
  std::vector<std::string> paths;
  for (const EmbeddedSource& header : program.headers) paths.emplace_back(header.path);
  return paths;
}

TEST(KernelRequest, IsCalledByItsNameAndConstants) {
  EXPECT_EQ(to_string({"scale", {}}), "scale");
  EXPECT_EQ(to_string({"scale", {{"kFactor", 3}, {"kRows", -1}}}), "scale[kFactor=3,kRows=-1]");
  EXPECT_EQ(to_string({"scale", {}, true}), "scale timed");
  EXPECT_EQ(to_string({"scale", {{"kFactor", 3}}, true}), "scale[kFactor=3] timed");
}

TEST(KernelProgram, HoldsWhatTheSourceIncludesAndNothingElse) {
  const KernelProgram cuda = program_of({"scale", {}}, small_kernels(), "cpu_driver/");
  EXPECT_EQ(header_paths(cuda),
            (std::vector<std::string>{"kernels_src/architecture.h", "kernels_src/args.h", "kernels_src/block_stamps.h",
                                      "kernels_src/device/dialect.cuh", "kernels_src/scale.h"}));
  const KernelProgram cpu = program_of({"scale", {}}, small_kernels(), "");
  EXPECT_EQ(header_paths(cpu),
            (std::vector<std::string>{"cpu_driver/emulation.h", "kernels_src/architecture.h", "kernels_src/args.h",
                                      "kernels_src/block_stamps.h", "kernels_src/device/dialect.cuh",
                                      "kernels_src/field_visit.h", "kernels_src/scale.h"}));
}

TEST(KernelProgram, OfATimedKernelSaysSoBeforeAllElse) {
  const KernelProgram plain = program_of({"scale", {{"kFactor", 3}}}, small_kernels(), "");
  const KernelProgram timed = program_of({"scale", {{"kFactor", 3}}, true}, small_kernels(), "");
  EXPECT_EQ(timed.prelude, "#define NODEWRIGHT_TIMED 1\n" + plain.prelude);
  EXPECT_NE(hash_of(timed, "g++"), hash_of(plain, "g++"));
}

TEST(KernelProgram, StartsWithItsConstants) {
  const KernelProgram program =
      program_of({"scale", {{"kFactor", 3}, {"kLeast", INT64_MIN}}}, small_kernels(), "cpu_driver/");
  EXPECT_EQ(program.prelude,
            "namespace nodewright {\nconstexpr long long kFactor = 3;\n"
            "constexpr long long kLeast = -9223372036854775807LL - 1;\n}\n");
}

TEST(KernelProgram, DefinesComeFirstThenHeadersThenConstantsOfEveryType) {
  const KernelRequest request{.name = "scale",
                              .constants = {{"kRows", 4},
                                            {"kCausal", true},
                                            {"kScale", 0.1f},
                                            {"kLimit", -1.5},
                                            {"Element", TypeName{"__half"}},
                                            {"kLayout", Expression{"Layout::rows"}}},
                              .defines = {{"WIDE", "1"}},
                              .headers = {"cuda_fp16.h"}};
  EXPECT_EQ(program_of(request, small_kernels(), "").prelude,
            "#define WIDE 1\n#include <cuda_fp16.h>\nnamespace nodewright {\nconstexpr long long kRows = 4;\n"
            "constexpr bool kCausal = true;\nconstexpr float kScale = 0x1.99999ap-4f;\n"
            "constexpr double kLimit = -0x1.8p+0;\nusing Element = __half;\n"
            "constexpr auto kLayout = Layout::rows;\n}\n");
  EXPECT_EQ(to_string(request),
            "scale[kRows=4,kCausal=true,kScale=0.1,kLimit=-1.5,Element=__half,kLayout=Layout::rows] -DWIDE=1 "
            "<cuda_fp16.h>");
  EXPECT_THROW(program_of({.name = "scale", .defines = {{"TWO WORDS", "1"}}}, small_kernels(), ""), Error);
  EXPECT_THROW(program_of({"scale", {{"kScale", std::numeric_limits<float>::infinity()}}}, small_kernels(), ""), Error);
}

TEST(KernelProgram, HashFollowsTheFilesOfItsIncludeFolders) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.path() / "inner");
  folder.write("outer.h", "#include \"inner/beside.h\"\n");
  folder.write("inner/beside.h", "# include \"last.h\"\n");
  folder.write("inner/last.h", "int one;\n");
  folder.write("unused.h", "int two;\n");
  const KernelRequest request{.name = "scale", .headers = {"outer.h"}, .include_folders = {(folder.path()).string()}};
  const auto hash = [&] { return hash_of(program_of(request, small_kernels(), ""), "nvrtc"); };
  const Digest before = hash();
  EXPECT_EQ(hash(), before);
  folder.write("unused.h", "int three;\n");
  EXPECT_EQ(hash(), before);
  folder.write("inner/last.h", "int other;\n");
  EXPECT_NE(hash(), before);
}

TEST(KernelProgram, HashChangesWithEveryPart) {
  std::vector<EmbeddedSource> sources = small_kernels();
  const KernelRequest request{"scale", {{"kFactor", 3}}};
  const Digest before = hash_of(program_of(request, sources, ""), "g++ 12");
  EXPECT_EQ(hash_of(program_of(request, sources, ""), "g++ 12"), before);
  EXPECT_NE(hash_of(program_of(request, sources, ""), "g++ 13"), before);
  EXPECT_NE(hash_of(program_of({"scale", {{"kFactor", 4}}}, sources, ""), "g++ 12"), before);
  const std::string header = std::string(kScaleHeader) + "// changed\n";
  sources[0].text = header;
  EXPECT_NE(hash_of(program_of(request, sources, ""), "g++ 12"), before);
  sources[0].text = kScaleHeader;
  sources[2].text = header;  // hasty.cu: not part of it
  EXPECT_EQ(hash_of(program_of(request, sources, ""), "g++ 12"), before);
}

TEST(KernelProgram, OfAnUnknownNameListsTheKernels) {
  for (const char* name : {"no_such_kernel", "../scale", ""}) {
    try {
      program_of({name, {}}, small_kernels(), "");
      FAIL() << name;
    } catch (const Error& error) {
      for (const char* words : {"scale, hasty, count_down, cluster, broken", "KernelCacheOptions::extra_sources"})
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(program_of({"scale", {{"k Factor", 1}}}, small_kernels(), ""), Error);
}

TEST(KernelProgram, FindsItsSourceInAnyFolderOfKernels) {
  constexpr std::string_view kText = "// another scale\n";
  EXPECT_EQ(kernel_name_of("kernels_src/scale.cu"), "scale");
  EXPECT_EQ(kernel_name_of("kernels_src/own/sums/scale.cu"), "scale");
  for (const char* path : {"kernels_src/scale.h", "scale.cu", "other/kernels_src/scale.cu", "kernels_src/scale.cuh"})
    EXPECT_EQ(kernel_name_of(path), "") << path;
  const EmbeddedSource own[] = {{"kernels_src/own/sums/scale.cu", kText}, {"kernels_src/upscale.cu", "// longer\n"}};
  EXPECT_EQ(program_of({"scale", {}}, own, "").source.path, "kernels_src/own/sums/scale.cu");
  EXPECT_EQ(program_of({"attend", {}}, {}, "").source.path, "kernels_src/attention/attend.cu");
  const EmbeddedSource instead[] = {{"kernels_src/own/attend.cu", kText}};
  EXPECT_EQ(program_of({"attend", {}}, instead, "").source.text, kText) << "an extra source comes first";
}

TEST(EmbeddedSources, NameEachKernelOnce) {
  std::set<std::string_view> names;
  for (const EmbeddedSource& source : embedded_sources())
    if (const std::string_view name = kernel_name_of(source.path); !name.empty()) {
      EXPECT_TRUE(names.insert(name).second) << source.path;
    }
  EXPECT_GT(names.size(), 25u);
}

TEST(EmbeddedSources, AreTheFilesOfTheProject) {
  const std::filesystem::path root = test::source_dir();
  std::string before;
  for (const EmbeddedSource& source : embedded_sources()) {
    EXPECT_LT(before, source.path) << "not sorted";
    before = source.path;
    EXPECT_EQ(read_text(root / source.path), source.text) << source.path;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "kernels_src")) {
    if (entry.path().extension() != ".cu") continue;
    const std::string path = entry.path().lexically_relative(root).string();
    const auto sources = embedded_sources();
    EXPECT_TRUE(std::any_of(sources.begin(), sources.end(), [&](const auto& s) { return s.path == path; })) << path;
  }
}

}  // namespace
}  // namespace nodewright
