// Kernels that cannot be had, or that do not end, while requests are open: a damaged image on disk is compiled anew and
// nobody notices; every other fault is the one end of each request, with one message that names the kernel.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "engine/engine.h"
#include "runtime/compilers/image_store.h"
#include "runtime/kernels/kernel_request.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

// The text of a kernel that the program carries.
std::string source_of_kernel(const std::string& name) {
  for (const EmbeddedSource& source : embedded_sources())
    if (kernel_name_of(source.path) == name) return std::string(source.text);
  ADD_FAILURE() << "no kernel " << name;
  return "";
}

EngineOptions faulty_options() {
  return {.max_batch = 3,
          .buckets = {8},
          .max_context = 2 * kPageTokens,
          .pages = 5,
          .reserve = Reserve::prompt,
          .numerics = Numerics::invariant};  // tokens are compared across buckets
}

// A model that multiplies by rows in every bucket, whose kernels come from a folder of the test's own, and one of them
// from another text.
struct ModelWithKernel {
  ModelWithKernel(const std::string& device, const std::string& kernel, const std::string& text,
                  const std::filesystem::path& folder = {})
      : path("kernels_src/" + kernel + ".cu"),
        source(text),
        loaded("gemma3/window_16", device, Observe::yes),
        kernels(loaded.device, {.folder = folder, .extra_sources = {{path, source}}, .progress = {}}) {}

  Engine engine(const EngineOptions& options = faulty_options()) {
    return Engine(loaded.device, kernels, loaded.model, options);
  }
  Interposer& interposer() { return *loaded.opened.interposer; }

  std::string path, source;
  test::LoadedModel loaded;
  KernelCache kernels;
};

// More than run at once.
constexpr size_t kFaultyRequests = 4;

void submit_faulty(Engine& engine, size_t vocab) {
  for (uint64_t i = 0; i < kFaultyRequests; ++i)
    ASSERT_TRUE(engine.submit({.prompt = test::some_tokens(5 + 7 * i, vocab, i), .max_tokens = 6}).id);
}

// With some requests under way and one that waits.
void pause_among_requests(Engine& engine, size_t vocab) {
  submit_faulty(engine, vocab);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(engine.advance());
  engine.pause();
  while (engine.advance()) continue;
  ASSERT_EQ(engine.pipeline().mode(), PipelineMode::paused);
  ASSERT_FALSE(engine.pipeline().admitted().empty());
  ASSERT_FALSE(engine.pipeline().waiting().empty());
}

std::map<RequestId, std::vector<int32_t>> served_outputs(Engine& engine) {
  while (engine.advance()) engine.pipeline().check();
  std::map<RequestId, std::vector<int32_t>> outputs;
  for (const Resolution& end : engine.take_resolutions()) {
    EXPECT_EQ(end.reason, EndReason::length) << end.message;
    EXPECT_TRUE(outputs.emplace(end.request, end.outputs).second) << "request " << end.request << " ended again";
  }
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
  return outputs;
}

// The engine has failed: each request has ended once, all with the message that is returned, and nothing is launched.
std::string message_of_failed(Engine& engine, Interposer& interposer) {
  EXPECT_EQ(engine.pipeline().mode(), PipelineMode::failed);
  const uint64_t launches = interposer.calls(DriverEntry::cuGraphLaunch);
  EXPECT_FALSE(engine.advance());
  EXPECT_EQ(interposer.calls(DriverEntry::cuGraphLaunch), launches);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
  std::string message;
  std::map<RequestId, int> ends;
  for (const Resolution& end : engine.take_resolutions()) {
    EXPECT_EQ(++ends[end.request], 1) << "request " << end.request << " ended again";
    EXPECT_EQ(end.reason, EndReason::failed);
    EXPECT_TRUE(message.empty() || message == end.message) << "another message: " << end.message;
    message = end.message;
  }
  EXPECT_EQ(ends.size(), kFaultyRequests);
  expect_words(engine.submit({.prompt = {1}}).reason, {"the engine has failed"});
  return message;
}

// A folder in which `kernel` is kept apart: everything else in the usual one is linked to.
void link_usual_images(const ScratchFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(ImageStore::default_folder()))
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), folder.path() / entry.path().filename());
}

std::vector<std::filesystem::path> own_images(const ScratchFolder& folder, const std::string& kernel) {
  std::vector<std::filesystem::path> found;
  for (const std::filesystem::path& file : folder.files())
    if (file.filename().string().starts_with(kernel + "-") && !std::filesystem::is_symlink(file)) found.push_back(file);
  return found;
}

TEST(EngineFaultsOfKernelsOnCpuDriver, ADamagedImageIsCompiledAnewAmongRequestsAndARefusedOneEndsThem) {
  const std::string kernel = "norm_gate_up", text = source_of_kernel(kernel) + "// kept apart\n";
  EngineOptions both = faulty_options();
  both.buckets = {1, 8};
  {
    test::LoadedModel usual("gemma3/window_16", "cpu");
    (void)Engine(usual.device, usual.kernels, usual.model, both);  // fills the usual folder
  }
  const ScratchFolder folder;
  link_usual_images(folder);
  std::filesystem::path image;  // of the bucket of one row
  std::map<RequestId, std::vector<int32_t>> expected;
  {
    ModelWithKernel model("cpu", kernel, text, folder.path());
    Engine engine = model.engine();
    submit_faulty(engine, model.loaded.vocab());
    expected = served_outputs(engine);
    const std::vector<std::filesystem::path> before = own_images(folder, kernel);
    ASSERT_EQ(before.size(), 1u);
    (void)model.engine(both);
    for (const std::filesystem::path& file : own_images(folder, kernel))
      if (file != before[0]) image = file;
  }
  ASSERT_EQ(expected.size(), kFaultyRequests);
  ASSERT_FALSE(image.empty());
  const std::string whole = read_text(image);

  const std::string foreign = read_text(own_images(folder, kernel).at(0) == image ? own_images(folder, kernel).at(1)
                                                                                  : own_images(folder, kernel).at(0));
  for (const std::string& damaged : {whole.substr(0, whole.size() / 2), foreign}) {
    write_text(image, damaged);
    ModelWithKernel model("cpu", kernel, text, folder.path());
    Engine engine = model.engine();
    pause_among_requests(engine, model.loaded.vocab());
    engine.rebuild_graphs({.buckets = {1, 8}});
    EXPECT_EQ(model.kernels.stats().disk_rejects, 1u);
    EXPECT_EQ(model.kernels.stats().compiled, 1u);
    EXPECT_EQ(read_text(image).size(), whole.size());
    engine.resume();
    EXPECT_EQ(served_outputs(engine), expected);
    EXPECT_GT(engine.stats().buckets.at({1, RunMode::explicit_}).steps, 0);
  }

  // Its hash is right, and the driver does not take it.
  Digest key;
  std::memcpy(&key, whole.data() + 8, sizeof key);  // after the magic word
  ModelWithKernel model("cpu", kernel, text, folder.path());
  const ImageStore store(folder.path());
  ASSERT_EQ(store.file_of(kernel, key), image);
  const std::string no_image = "no ELF file";
  ASSERT_EQ(store.write(kernel, key, std::as_bytes(std::span(no_image))), "");
  Interposer& interposer = model.interposer();
  {
    Engine engine = model.engine();
    pause_among_requests(engine, model.loaded.vocab());
    const std::string error = error_of([&] { engine.rebuild_graphs({.buckets = {1, 8}}); });
    expect_words(error, {"norm_gate_up[kSingleRow=1", "driver: cuLibraryLoadData", "CUDA_ERROR_"});
    EXPECT_EQ(message_of_failed(engine, interposer), error);
  }
  for (const HandleKind kind : {HandleKind::graph, HandleKind::graph_exec, HandleKind::event})
    EXPECT_EQ(interposer.live_count(kind), 0u) << interposer.describe_live();
}

TEST(EngineFaultsOfKernelsOnCpuDriver, ASourceThatDoesNotCompileIsOneEndOfEachRequestWithTheCompilersLog) {
  ModelWithKernel model(
      "cpu", "norm_gate_up",
      source_of_kernel("norm_gate_up") +
          "static_assert(nodewright::kSingleRow == 0, \"the compiler does not want a bucket of one row\");\n");
  Interposer& interposer = model.interposer();
  (void)model.engine();  // loads the kernels
  const std::string before = interposer.describe_live();
  const auto expect_log = [](const std::string& error) {
    expect_words(error, {"norm_gate_up[kSingleRow=1", "the compiler does not want a bucket of one row"});
  };
  {
    Engine engine = model.engine();
    pause_among_requests(engine, model.loaded.vocab());
    const std::string error = error_of([&] { engine.rebuild_graphs({.buckets = {1, 8}}); });
    expect_log(error);
    EXPECT_EQ(message_of_failed(engine, interposer), error);
  }
  EXPECT_EQ(interposer.describe_live(), before);
  EngineOptions options = faulty_options();
  options.buckets = {1, 8};
  expect_log(error_of([&] { (void)model.engine(options); }));
  EXPECT_EQ(interposer.describe_live(), before);
  Engine engine = model.engine();
  submit_faulty(engine, model.loaded.vocab());
  EXPECT_EQ(served_outputs(engine).size(), kFaultyRequests);
}

// What chooses the third token of a request never does.
std::string endless_sample() {
  const std::string wait = "wait_for_inputs();";
  std::string text = source_of_kernel("sample");
  const size_t at = text.find(wait);
  if (at == std::string::npos) ADD_FAILURE() << "no " << wait;
  return text.insert(at + wait.size(), R"(
  const volatile int32_t* output = args.output_index.data + blockIdx.x;
  while (static_cast<int>(blockIdx.x) < args.n_live.data[0] && *output == 2) {})");
}

TEST(EngineFaultsOfKernelsOnCpuDriver, AKernelThatDoesNotEndIsEndedByTheDriverAndFailsEveryRequest) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call that it intercepts";
#endif
  std::string before;
  {
    ModelWithKernel model("cpu:timeout_ms=400", "sample", endless_sample());
    (void)model.engine();  // loads the kernels
    before = model.interposer().describe_live();
    {
      Engine engine = model.engine();
      submit_faulty(engine, model.loaded.vocab());
      while (engine.advance()) engine.pipeline().check();
      expect_words(message_of_failed(engine, model.interposer()),
                   {"CUDA_ERROR_LAUNCH_TIMEOUT (702)", "node 'sample', kernel sample"});
      EXPECT_FALSE(engine.take_tokens().empty()) << "it hung before the third token";
    }
    EXPECT_EQ(model.interposer().describe_live(), before);
  }
  test::LoadedModel next("gemma3/window_16", "cpu");
  Engine engine(next.device, next.kernels, next.model, faulty_options());
  submit_faulty(engine, next.vocab());
  EXPECT_EQ(served_outputs(engine).size(), kFaultyRequests);
}

// The engine's patience ends first, while the kernel runs; the driver's makes the end of the test possible.
TEST(EngineFaultsOfKernelsOnCpuDriver, AKernelThatOutlastsTheStepTimeoutFailsEveryRequestWhileItRuns) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call that it intercepts";
#endif
  ModelWithKernel model("cpu:timeout_ms=6000", "sample", endless_sample());
  (void)model.engine();  // loads the kernels
  const std::string before = model.interposer().describe_live();
  {
    EngineOptions options = faulty_options();
    options.step_timeout_ms = 1000;
    Engine engine = model.engine(options);
    submit_faulty(engine, model.loaded.vocab());
    while (engine.advance()) engine.pipeline().check();
    EXPECT_TRUE(engine.slots().timed_out()) << "it waited for the kernel, which the driver ends";
    expect_words(message_of_failed(engine, model.interposer()), {"bucket '8'", "1000 ms", "step timeout"});
  }
  EXPECT_EQ(model.interposer().describe_live(), before);
}

// Nothing but the end of the process ends the kernel. As `nodewright run` does it.
[[noreturn]] void serve_until_timed_out() {
  ::alarm(600);  // a test that fails, and does not hang
  ModelWithKernel model("cpu", "sample", endless_sample());
  EngineOptions options = faulty_options();
  options.step_timeout_ms = 1000;
  Engine engine = model.engine(options);
  submit_faulty(engine, model.loaded.vocab());
  while (engine.advance()) continue;
  const std::vector<Resolution> ends = engine.take_resolutions();
  for (const Resolution& end : ends) std::fprintf(stderr, "%ld: %s\n", end.request, end.message.c_str());
  std::_Exit(ends.size() == kFaultyRequests && engine.slots().timed_out() ? 7 : 8);
}

TEST(EngineFaultsOfKernelsOnCpuDriver, AProcessWhoseKernelNeverEndsEndsAllTheSame) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(serve_until_timed_out(), testing::ExitedWithCode(7), "4: .*bucket '8'.*1000 ms");
}

}  // namespace
}  // namespace nodewright
