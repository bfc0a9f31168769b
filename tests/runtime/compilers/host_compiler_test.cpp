#include "runtime/compilers/host_compiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "runtime/kernels/kernel_request.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;

HostCompileRequest saxpy(const KernelProgram& program, const fs::path& keep) {
  HostCompileRequest request{.kernel = "saxpy", .sources = {}, .prelude = program.prelude, .keep = keep};
  request.sources.emplace(program.source.path, program.source.text);
  for (const EmbeddedSource& header : program.headers) request.sources.emplace(header.path, header.text);
  return request;
}

// The first g++ on the PATH that is not ccache, which keeps no dialect.
std::string own_compiler() {
  std::istringstream folders(getenv("PATH"));
  std::error_code none;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const fs::path file = fs::path(folder) / "g++";
        fs::exists(file, none) && fs::canonical(file).stem() != "ccache")
      return file;
  return "g++";
}

class KeptDialectOnCpuDriver : public testing::Test {
 protected:
  const EnvironmentValue compiler_{"NODEWRIGHT_CXX", own_compiler()};
  const ScratchFolder folder_;
  const KernelProgram program_ = program_of({.name = "saxpy"}, {}, {});
};

TEST_F(KeptDialectOnCpuDriver, IsMadeOnceForTheFourthKernelAndGivesTheSameImages) {
  const auto image = compile_for_cpu(saxpy(program_, {}));
  for (int kernel = 0; kernel < 3; ++kernel) {
    EXPECT_EQ(compile_for_cpu(saxpy(program_, folder_.path())), image);
    EXPECT_TRUE(folder_.files().empty());
  }
  EXPECT_EQ(compile_for_cpu(saxpy(program_, folder_.path())), image);
  ASSERT_EQ(folder_.files().size(), 1u);
  const auto made = fs::last_write_time(folder_.files()[0]);
  EXPECT_EQ(compile_for_cpu(saxpy(program_, folder_.path())), image);
  ASSERT_EQ(folder_.files().size(), 1u);
  EXPECT_EQ(fs::last_write_time(folder_.files()[0]), made);
}

TEST_F(KeptDialectOnCpuDriver, IsReadByTheCompiler) {
  for (int kernel = 0; kernel < 4; ++kernel) compile_for_cpu(saxpy(program_, folder_.path()));
  HostCompileRequest request = saxpy(program_, folder_.path());
  const std::string text = "#ifndef NODEWRIGHT_KERNEL\n#error no dialect\n#endif\n" + std::string(program_.source.text);
  request.sources.at(std::string(program_.source.path)) = text;
  EXPECT_NO_THROW(compile_for_cpu(request));
  request.keep.clear();
  EXPECT_THROW(compile_for_cpu(request), Error);
}

TEST_F(KeptDialectOnCpuDriver, IsMadeAnewWhenItIsDamagedOrOthersMayWriteIt) {
  for (int kernel = 0; kernel < 3; ++kernel) compile_for_cpu(saxpy(program_, folder_.path()));
  const auto image = compile_for_cpu(saxpy(program_, folder_.path()));
  const fs::path kept = folder_.files().at(0);
  const auto size = fs::file_size(kept);
  fs::resize_file(kept, size / 2);
  EXPECT_EQ(compile_for_cpu(saxpy(program_, folder_.path())), image);
  EXPECT_EQ(compile_for_cpu(saxpy(program_, folder_.path())), image);
  EXPECT_GT(fs::file_size(kept), size / 2);

  write_text(kept, "by somebody else");
  fs::permissions(kept, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(compile_for_cpu(saxpy(program_, folder_.path())), image);
  EXPECT_GT(fs::file_size(kept), size / 2);
}

TEST_F(KeptDialectOnCpuDriver, IsNotMadeWhereMacrosComeBeforeIt) {
  HostCompileRequest request = saxpy(program_, folder_.path());
  request.prelude = "#define NODEWRIGHT_TIMED 1\n" + request.prelude;
  for (int kernel = 0; kernel < 5; ++kernel) compile_for_cpu(request);
  EXPECT_TRUE(folder_.files().empty());
}

TEST_F(KeptDialectOnCpuDriver, OfCheckedImagesIsAnother) {
  HostCompileRequest checked = saxpy(program_, {});
  checked.checked = true;
  const auto image = compile_for_cpu(checked);
  checked.keep = folder_.path();
  for (int kernel = 0; kernel < 4; ++kernel) {
    compile_for_cpu(saxpy(program_, folder_.path()));
    EXPECT_EQ(compile_for_cpu(checked), image);
  }
  EXPECT_EQ(folder_.files().size(), 2u);
}

// A process of its own, since nothing compiles after stop_compiling(): begun anew, not forked among threads, after
// which the thread sanitizer takes no new one.
TEST(StopCompilingOnCpuDriver, EndsWhatTheCompilerHasStarted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const ScratchFolder folder;
  const fs::path compiler = folder.path() / "compiler", started = folder.path() / "started";
  std::ofstream(compiler) << "#!/bin/sh\nsleep 10000 &\necho $! >" << started.string() << ".new\nmv "
                          << started.string() << ".new " << started.string() << "\nwait\n";
  fs::permissions(compiler, fs::perms::owner_all);
  const EnvironmentValue chosen("NODEWRIGHT_CXX", compiler.string());
  const auto ends_all = [&] {
    std::thread([] {
      try {
        host_compiler_identity();
      } catch (const Error&) {  // it was killed
      }
    }).detach();
    while (!fs::exists(started)) std::this_thread::yield();
    stop_compiling(std::chrono::minutes(10));
    pid_t child = 0;
    std::ifstream(started) >> child;
    const auto is_running = [&] {  // an orphan that was killed is a zombie until somebody reaps it
      std::ifstream status("/proc/" + std::to_string(child) + "/stat");
      std::string number, name, state;
      return status >> number >> name >> state && state != "Z";
    };
    for (int looks = 0; looks < 60'000 && is_running(); ++looks) usleep(10'000);
    const bool ended = child > 0 && !is_running();
    if (!ended) kill(child, SIGKILL);
    _exit(ended ? 0 : 1);
  };
  EXPECT_EXIT(ends_all(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nodewright
