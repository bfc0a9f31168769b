// The cache on the device under test: what is compiled, what is read, and every way in which the disk can be wrong.
#include "runtime/kernels/kernel_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "kernels_src/saxpy.h"
#include "runtime/context_guard.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"
#include "tests/runtime/kernels/small_kernels.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_device.h"

NODEWRIGHT_ARGS(Triple, { InOut<float> x; })

namespace nodewright {
namespace {

class KernelCacheTest : public testing::Test {
 protected:
  KernelCacheOptions options() const { return {folder_.path(), small_kernels(), {}}; }

  const KernelRequest scale_ = {"scale", {{"kFactor", 3}}};
  ScratchFolder folder_;
  OpenedDevice opened_ = open_device(test::test_device(), Observe::yes);
  Device& device_ = *opened_.device;
  Driver& driver_ = *opened_.driver;
};

TEST_F(KernelCacheTest, CompilesOnceThenReadsThenRemembers) {
  {
    KernelCache first(device_, options());
    const LoadedKernel& kernel = first.get(scale_);
    EXPECT_EQ(&first.get(scale_), &kernel);
    EXPECT_EQ(kernel.name, "scale");
    EXPECT_EQ(kernel.args_bytes, sizeof(Scale));
    EXPECT_EQ(kernel.max_threads, 128);
    EXPECT_TRUE(kernel.waits_for_inputs);
    EXPECT_EQ(first.stats().compiled, 1u);
    EXPECT_EQ(first.stats().disk_hits, 0u);
    EXPECT_GT(first.stats().ms, 0.0);
    EXPECT_EQ(opened_.interposer->live_count(HandleKind::library), 1u);
  }
  EXPECT_EQ(opened_.interposer->live_count(HandleKind::library), 0u);
  KernelCache second(device_, options());
  second.get(scale_);
  EXPECT_EQ(second.stats().compiled, 0u);
  EXPECT_EQ(second.stats().disk_hits, 1u);
  EXPECT_EQ(second.stats().disk_problem, "");
}

TEST_F(KernelCacheTest, KernelsOfOtherConstantsAreOtherKernels) {
  KernelCache cache(device_, options());
  const LoadedKernel& three = cache.get(scale_);
  const LoadedKernel& four = cache.get({"scale", {{"kFactor", 4}}});
  EXPECT_NE(three.function, four.function);
  EXPECT_EQ(cache.stats().compiled, 2u);
  EXPECT_EQ(folder_.files().size(), 2u);
}

TEST_F(KernelCacheTest, TellsAKernelThatDoesNotWait) {
  KernelCache cache(device_, options());
  EXPECT_FALSE(cache.get({"hasty", {}}).waits_for_inputs);
}

TEST_F(KernelCacheTest, ACompiledKernelRuns) {
  KernelCache cache(device_, options());
  const Kernel<Scale> kernel = cache.kernel<Scale>(scale_, launch_shape_1d(2, 128));
  const DeviceBuffer x(device_, "x", 200 * sizeof(float)), y(device_, "y", 200 * sizeof(float));
  std::vector<float> values(200, 2.0f), results(200);
  write_view<float>(device_, view_of<float>(x), values, "x");
  Scale args{view_of<float>(x), view_of<float>(y), 200};
  void* words[] = {&args};
  const Stream stream(device_, "s");
  CUlaunchConfig config{};
  config.gridDimX = 2, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 128, config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream.get();
  ASSERT_EQ(driver_.cuLaunchKernelEx(&config, kernel.loaded->function, words, nullptr), CUDA_SUCCESS);
  stream.synchronize();
  read_view<float>(device_, results, view_of<float>(y), "y");
  EXPECT_EQ(results, std::vector<float>(200, 6.0f));
}

TEST_F(KernelCacheTest, RefusesAKernelOfAnotherArgumentStruct) {
  struct Other {
    In<float> x;
  };
  KernelCache cache(device_, options());
  EXPECT_THROW(cache.kernel<Other>(scale_, launch_shape_1d(1, 128)), Error);
}

TEST_F(KernelCacheTest, TakesASourceLaterAndTwiceButNoOtherOfItsName) {
  constexpr std::string_view kText =
      "NODEWRIGHT_KERNEL(triple, Triple, 32) { wait_for_inputs(); args.x.data[0] *= 3; }";
  const InlineKernel source("triple", kTripleText, kText), other("triple", kTripleText, "another text");
  KernelCache cache(device_, KernelCacheOptions{.folder = folder_.path()});
  EXPECT_THROW(cache.get({"triple"}), Error);
  EXPECT_EQ(cache.add(source), "triple");
  EXPECT_EQ(cache.kernel<Triple>(source, launch_shape_1d(1, 32)).loaded, &cache.get({"triple"}));
  expect_error([&] { cache.add(other); }, {"'triple'", "another text", "kernels_src/triple.cu"});
  expect_error(
      [&] {
        cache.add({"kernels_src/own/triple.cu", "another text"});
      },
      {"'triple'", "kernels_src/triple.cu"});
  cache.kernel<Saxpy>("saxpy", saxpy_shape(1));  // an embedded one
  expect_error([&] { cache.add({"kernels_src/saxpy.cu", "a text"}); }, {"'saxpy'", "loaded already"});
}

TEST_F(KernelCacheTest, PreparesEveryKernelOnceAndTellsItsProgress) {
  KernelCacheOptions told = options();
  std::vector<std::string> names;
  told.progress = [&](size_t done, size_t total, std::string_view name) {
    EXPECT_EQ(done, names.size() + 1);
    EXPECT_EQ(total, 3u);
    names.emplace_back(name);
  };
  KernelCache cache(device_, told);
  const KernelRequest requests[] = {scale_, {"hasty", {}}, scale_, {"scale", {{"kFactor", 5}}}};
  cache.prepare(requests);
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(cache.stats().compiled, 3u);
  const uint64_t calls = opened_.interposer->calls();
  cache.prepare(requests);
  cache.get({"hasty", {}});
  EXPECT_EQ(opened_.interposer->calls(), calls) << "all were loaded";
  EXPECT_EQ(cache.stats().compiled, 3u);
}

TEST_F(KernelCacheTest, TellsHowManyKernelsItCompilesBeforeItDoesAndNothingOfThoseOnDisk) {
  const KernelRequest five{"scale", {{"kFactor", 5}}}, nine{"scale", {{"kFactor", 9}}}, hasty{"hasty", {}};
  const auto told_of = [&](std::span<const KernelRequest> requests) {
    std::vector<size_t> told;
    KernelCacheOptions of_cache = options();
    KernelCache* asked = nullptr;
    of_cache.compiles = [&](size_t kernels) {
      told.push_back(kernels);
      EXPECT_EQ(asked->stats().compiled, 0u);
    };
    KernelCache cache(device_, of_cache);
    asked = &cache;
    cache.prepare(requests);
    EXPECT_EQ(cache.stats().compiled + cache.stats().disk_hits, requests.size());
    return told;
  };
  EXPECT_EQ(told_of(std::vector{scale_, five}), std::vector<size_t>{2});
  EXPECT_EQ(told_of(std::vector{scale_, five}), std::vector<size_t>{});
  EXPECT_EQ(told_of(std::vector{scale_, five, nine, hasty}), std::vector<size_t>{2});
}

TEST_F(KernelCacheTest, ASourceThatDoesNotCompileIsAnErrorWithTheCompilersWords) {
  KernelCache cache(device_, options());
  const KernelRequest broken{"broken", {{"kFactor", 2}}};
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      attempt == 0 ? cache.prepare(std::span(&broken, 1)) : static_cast<void>(cache.get(broken));
      FAIL();
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("broken"), std::string::npos) << text;
      EXPECT_NE(text.find("kFactor=2"), std::string::npos) << text;
      EXPECT_NE(text.find("this_name_is_not_declared"), std::string::npos) << text;
    }
  }
  EXPECT_EQ(cache.stats().compiled, 0u);
  EXPECT_NO_THROW(cache.get(scale_)) << "the cache is usable after a failure";
}

TEST_F(KernelCacheTest, PreparesWhatCompilesAndLeavesOutTheRest) {
  KernelCache cache(device_, options());
  const KernelRequest requests[] = {{"broken", {{"kFactor", 2}}}, scale_, {"no_such_kernel", {}}, {"hasty", {}}};
  cache.prepare_what_compiles(requests);
  EXPECT_EQ(cache.stats().compiled, 2u);
  const uint64_t calls = opened_.interposer->calls();
  cache.get(scale_);
  cache.get({"hasty", {}});
  EXPECT_EQ(opened_.interposer->calls(), calls) << "both were loaded";
  EXPECT_THROW(cache.get(requests[0]), Error);
  EXPECT_THROW(cache.prepare(requests), Error);
}

TEST_F(KernelCacheTest, WritesADamagedFileAnew) {
  { KernelCache(device_, options()).get(scale_); }
  const std::filesystem::path file = folder_.files().at(0);
  const std::string whole = read_text(file);
  std::string altered = whole;
  altered.back() = static_cast<char>(altered.back() ^ 1);
  for (const std::string& damaged : {whole.substr(0, whole.size() / 2), altered, std::string(), std::string("text")}) {
    write_text(file, damaged);
    KernelCache cache(device_, options());
    cache.get(scale_);
    EXPECT_EQ(cache.stats().disk_rejects, 1u);
    EXPECT_EQ(cache.stats().compiled, 1u);
    EXPECT_EQ(read_text(file).size(), whole.size());
    KernelCache next(device_, options());
    next.get(scale_);
    EXPECT_EQ(next.stats().disk_hits, 1u);
  }
}

TEST_F(KernelCacheTest, WorksWithoutAFolderAndSaysSo) {
  write_text(folder_.path() / "file", "");
  for (const std::filesystem::path& path : {folder_.path() / "file" / "below", std::filesystem::path("/proc/1/none")}) {
    KernelCache cache(device_, KernelCacheOptions{path, small_kernels(), {}});
    EXPECT_EQ(cache.get(scale_).name, "scale");
    EXPECT_EQ(cache.stats().compiled, 1u);
    EXPECT_EQ(cache.stats().disk_failures, 1u);
    EXPECT_NE(cache.stats().disk_problem.find(path.string()), std::string::npos) << cache.stats().disk_problem;
    EXPECT_TRUE(cache.folder().empty());
  }
}

TEST_F(KernelCacheTest, TellsOnceThatWhatItCompilesIsNotKept) {
  std::vector<std::string> told;
  KernelCacheOptions of_cache{"/proc/1/none", small_kernels(), {}};
  of_cache.not_kept = [&](const std::string& problem) { told.push_back(problem); };
  KernelCache cache(device_, of_cache);
  EXPECT_TRUE(told.empty());
  cache.get(scale_);
  cache.get({"hasty", {}});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("/proc/1/none"), std::string::npos) << told[0];
}

TEST_F(KernelCacheTest, TwoCachesMayCompileAndWriteTheSameKernelAtOnce) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w)
    writers.emplace_back([&] {
      const ContextGuard current(device_);
      KernelCache cache(device_, options());
      EXPECT_EQ(cache.get(scale_).name, "scale");
      EXPECT_EQ(cache.stats().disk_failures, 0u);
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(folder_.files().size(), 1u);
  KernelCache cache(device_, options());
  cache.get(scale_);
  EXPECT_EQ(cache.stats().disk_hits, 1u);
}

TEST_F(KernelCacheTest, ThreadsThatAskForOneKernelGetTheSame) {
  KernelCache cache(device_, options());
  std::vector<const LoadedKernel*> got(4);
  std::vector<std::thread> threads;
  for (auto& kernel : got)
    threads.emplace_back([&] {
      const ContextGuard current(device_);
      kernel = &cache.get(scale_);
    });
  for (std::thread& thread : threads) thread.join();
  for (const LoadedKernel* kernel : got) EXPECT_EQ(kernel, got[0]);
}

TEST_F(KernelCacheTest, EachDriverCallOfALoadMayFailAndLeavesNothingBehind) {
  { KernelCache(device_, options()).get(scale_); }
  bool passed = false;
  for (uint64_t n = 0; !passed; ++n) {
    ASSERT_LT(n, 50u);
    KernelCache cache(device_, options());
    opened_.interposer->fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
    const uint64_t injected = opened_.interposer->failures_injected();
    try {
      cache.get(scale_);
      passed = opened_.interposer->failures_injected() == injected;
      EXPECT_TRUE(passed) << "a failure was swallowed at call " << n;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("scale[kFactor=3]"), std::string::npos) << error.what();
      EXPECT_EQ(opened_.interposer->live_count(HandleKind::library), 0u);
      opened_.interposer->fail_none();
      EXPECT_EQ(cache.get(scale_).name, "scale") << "a second attempt succeeds";
    }
    opened_.interposer->fail_none();
  }
}

// A driver that knows a second parameter of every kernel. (On a GPU the code is read: CubinReader.)
class SecondParameter final : public CallObserver {
 public:
  std::optional<CUresult> before(const DriverCall& call) override {
    const bool asked = (call.entry == DriverEntry::cuFuncGetParamInfo && call.words[1] == 1) ||
                       call.entry == DriverEntry::cuFuncGetParamCount;  // leaves the count as it was: any number
    return asked ? std::optional(CUDA_SUCCESS) : std::nullopt;
  }
  CUresult after(const DriverCall&, CUresult result) override { return result; }
};

class KernelParametersOnCpuDriver : public KernelCacheTest {};

TEST_F(KernelParametersOnCpuDriver, ASecondParameterIsRefusedByName) {
  KernelCache cache(device_, options());
  SecondParameter observer;
  driver_.observe(&observer);
  expect_error([&] { cache.get(scale_); }, {"scale[kFactor=3]", "a second parameter", "ForeignKernel"});
  driver_.observe(opened_.interposer.get());
  EXPECT_EQ(cache.get(scale_).name, "scale");
}

TEST_F(KernelCacheTest, ReservesSharedMemoryOnceAndOnlyBeyond48KiB) {
  KernelCache cache(device_, options());
  const LoadedKernel& kernel = cache.get(scale_);
  const auto calls = [&] { return opened_.interposer->calls(DriverEntry::cuFuncSetAttribute); };
  const auto reservations = [&, by_loading = calls()] { return calls() - by_loading; };
  cache.allow_shared(kernel, 48 * 1024);
  EXPECT_EQ(reservations(), 0u);
  cache.allow_shared(kernel, 100 * 1024);
  cache.allow_shared(kernel, 64 * 1024);
  EXPECT_EQ(reservations(), 1u);
  try {
    cache.allow_shared(kernel, 1 << 20);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("needs 1048576 dynamic and 0 static bytes"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(device_.properties().shared_optin_bytes)), std::string::npos) << text;
  }
}

TEST_F(KernelCacheTest, ARequestAllowsSharedMemoryWhenItsKernelIsLoaded) {
  KernelCache cache(device_, options());
  KernelRequest large = scale_;
  large.allow_shared = 100 * 1024;
  const LoadedKernel& kernel = cache.get(large);
  EXPECT_EQ(allowed_dynamic_shared(kernel), 100u * 1024);
  EXPECT_EQ(&cache.get(scale_), &kernel);
  EXPECT_EQ(allowed_dynamic_shared(kernel), 100u * 1024);
  large.allow_shared = 1 << 20;
  expect_error([&] { cache.get(large); }, {"kernel 'scale'", "needs 1048576 dynamic and 0 static bytes", device_.name(),
                                           std::to_string(device_.properties().shared_optin_bytes)});
}

TEST(KernelCacheOnCpuDriver, KernelsDoNotWaitOnSm80) {
  const ScratchFolder folder;
  const OpenedDevice opened = open_device("cpu:sm80");
  KernelCache cache(*opened.device, KernelCacheOptions{folder.path(), small_kernels(), {}});
  EXPECT_FALSE(cache.get({"scale", {{"kFactor", 3}}}).waits_for_inputs);
}

}  // namespace
}  // namespace nodewright
