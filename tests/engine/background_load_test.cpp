// A model whose weights are still on their way: graphs are built meanwhile and choose the same tokens, and whatever
// ends the load leaves nothing behind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

constexpr const char* kModel = "llama/odd_sizes";

// Holds every other thread at a driver call, by default its first copy to the device, until open(), or until this one
// has uploaded a number of graphs. Passes every call on to the observer that was there.
class Gate : public CallObserver {
 public:
  explicit Gate(Driver& driver, DriverEntry held = DriverEntry::cuMemcpyHtoDAsync, int open_after = -1)
      : driver_(driver), next_(driver.observer()), held_(held), open_after_(open_after) {
    driver_.observe(this);
  }
  ~Gate() override { driver_.observe(next_); }

  void open() { open_ = true; }
  int graphs() const { return graphs_; }  // uploaded before it was open
  int passed() const { return passed_; }  // calls that it was to hold
  bool gave_up() const { return gave_up_; }

  std::optional<CUresult> before(const DriverCall& call) override {
    if (std::this_thread::get_id() == maker_) {
      if (call.entry == DriverEntry::cuGraphUpload && !open_ && ++graphs_ == open_after_) open();
    } else if (call.entry == held_) {
      const auto start = std::chrono::steady_clock::now();
      while (!open_ && !gave_up_) {
        gave_up_ = std::chrono::steady_clock::now() - start > std::chrono::seconds(600);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ++passed_;
    }
    return next_ ? next_->before(call) : std::nullopt;
  }
  CUresult after(const DriverCall& call, CUresult result) override {
    return next_ ? next_->after(call, result) : result;
  }

 private:
  Driver& driver_;
  CallObserver* next_;
  const std::thread::id maker_ = std::this_thread::get_id();
  const DriverEntry held_;
  const int open_after_;
  int graphs_ = 0;
  std::atomic<bool> open_ = false, gave_up_ = false;
  std::atomic<int> passed_ = 0;
};

// A device without a model.
struct EmptyDevice {
  OpenedDevice opened = open_device(test_device(), Observe::yes);
  Device& device = *opened.device;
  Stream stream{device, "decode"};
  KernelCache kernels{device};
  size_t handles() const { return opened.interposer->live().size(); }
};

EngineOptions engine_options() { return {.max_batch = 3, .buckets = {2, 8}, .max_context = 64}; }

std::map<RequestId, Tokens> served(Engine& engine) {
  for (uint64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(engine.submit({.prompt = some_tokens(5 + 3 * i, 1003, i), .max_tokens = 12}).id);
  while (engine.advance()) continue;
  std::map<RequestId, Tokens> outputs;
  for (const Resolution& end : engine.take_resolutions()) outputs[end.request] = end.outputs;
  EXPECT_EQ(outputs.size(), 4u);
  return outputs;
}

std::map<RequestId, Tokens> served_after_a_blocking_load() {
  LoadedModel loaded(kModel);
  Engine engine(loaded.device, loaded.kernels, loaded.model, engine_options());
  return served(engine);
}

TEST(BackgroundLoad, BuildsTheGraphsOfAnEngineBeforeTheFirstWeightTravels) {
  const std::map<RequestId, Tokens> expected = served_after_a_blocking_load();
  EmptyDevice on;
  Gate gate(*on.opened.driver);
  const DecoderModel model = DecoderModel::begin_load(on.device, golden_folder(kModel));
  EngineOptions options = engine_options();
  options.built = [&](const BuiltBucket& one) {
    EXPECT_EQ(gate.passed(), 0);
    if (one.built == one.total) gate.open();
  };
  Engine engine(on.device, on.kernels, model, options);
  EXPECT_EQ(gate.graphs(), 4);  // two buckets, two slots
  EXPECT_GT(gate.passed(), 0);
  EXPECT_FALSE(gate.gave_up());
  EXPECT_EQ(served(engine), expected);
}

TEST(BackgroundLoad, GivesADecoderInEveryModeTheLogitsOfABlockingLoad) {
  LoadedModel loaded(kModel);
  const Tokens prompt = some_tokens(9, loaded.vocab(), 1), continuation = some_tokens(3, loaded.vocab(), 2);
  for (const RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
    Decoder blocking = loaded.decoder(decoder_options(1, mode));
    const std::vector<Logits> expected = forced_logits(blocking, loaded, prompt, continuation);
    Gate gate(*loaded.opened.driver, DriverEntry::cuMemcpyHtoDAsync, 2);
    if (mode == RunMode::eager) gate.open();  // it has no graphs
    loaded.model = DecoderModel::begin_load(loaded.device, golden_folder(kModel));
    Decoder decoder = loaded.decoder(decoder_options(1, mode));
    EXPECT_EQ(forced_logits(decoder, loaded, prompt, continuation), expected) << to_string(mode);
    EXPECT_FALSE(gate.gave_up());
  }
}

TEST(BackgroundLoad, TellsProgressToWhoWaitsAndAllOfItAtTheEnd) {
  EmptyDevice on;
  uint64_t last = 0, whole = 0;
  const auto waiting = std::this_thread::get_id();
  const DecoderModel model =
      DecoderModel::begin_load(on.device, golden_folder(kModel), {[&](uint64_t done, uint64_t total) {
                                 EXPECT_EQ(std::this_thread::get_id(), waiting);
                                 EXPECT_GE(done, last);
                                 last = done, whole = total;
                               }});
  model.wait();
  EXPECT_EQ(last, model.weights().bytes());
  EXPECT_EQ(whole, model.weights().bytes());
  EXPECT_GT(model.upload_ms(), 0);
}

// Everything in front of the first copy has been made: chunks, events, a stream, and threads that read.
TEST(BackgroundLoad, IsGivenUpWithTheModel) {
  EmptyDevice on;
  const size_t before = on.handles();
  Gate gate(*on.opened.driver);
  {
    std::optional<DecoderModel> model = DecoderModel::begin_load(on.device, golden_folder(kModel));
    expect_error([&] { Decoder(on.device, on.kernels, *model, {.bucket = 0, .max_context = 64}); }, {"bucket"});
    gate.open();
  }
  EXPECT_EQ(on.handles(), before) << on.opened.interposer->describe_live();
}

TEST(BackgroundLoad, EndsBeforeAModelThatIsReplacedFreesItsMemory) {
  const std::map<RequestId, Tokens> expected = served_after_a_blocking_load();
  EmptyDevice on;
  DecoderModel model = DecoderModel::begin_load(on.device, golden_folder(kModel));
  for (int i = 0; i < 20; ++i) model = DecoderModel::begin_load(on.device, golden_folder(kModel));
  Engine engine(on.device, on.kernels, model, engine_options());
  EXPECT_EQ(served(engine), expected);
}

TEST(BackgroundLoad, TellsWhoWaitsThatAFileHasShrunk) {
  EmptyDevice on;
  const ScratchFolder folder;
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(golden_folder(kModel) / name, folder.path() / name);
  // Loads the kernels, which stay.
  Engine(on.device, on.kernels, DecoderModel::load(on.device, on.stream, folder.path()), engine_options());
  const size_t before = on.handles();
  {
    Gate gate(*on.opened.driver, DriverEntry::cuStreamCreate);
    const DecoderModel model = DecoderModel::begin_load(on.device, folder.path());
    const std::filesystem::path file = folder.path() / "model.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    gate.open();
    expect_error([&] { Engine(on.device, on.kernels, model, engine_options()); },
                 {"model.safetensors", "the file ends after"});
    expect_error([&] { model.wait(); }, {"model.safetensors", "the file ends after"});
  }
  EXPECT_EQ(on.handles(), before) << on.opened.interposer->describe_live();
}

// On a device whose calls fail one after the other, both halves of the start among them.
TEST(BackgroundLoadOnCpuDriver, LeavesNothingBehindWhicheverCallFails) {
  EmptyDevice on;
  Interposer& interposer = *on.opened.interposer;
  const auto start = [&] {
    const DecoderModel model = DecoderModel::begin_load(on.device, golden_folder(kModel));
    Decoder decoder(on.device, on.kernels, model, decoder_options(1));
  };
  start();  // from now on the kernels are there
  const size_t before = on.handles();
  const uint64_t first = interposer.calls();
  start();
  const uint64_t calls = interposer.calls() - first;
  uint64_t errors = 0;
  for (uint64_t n = 0; n < calls; ++n) {
    interposer.fail_call(n, CUDA_ERROR_UNKNOWN);
    const std::string error = error_of(start);
    interposer.fail_none();
    if (!error.empty()) ++errors, expect_words(error, {"CUDA_ERROR_UNKNOWN"});
    ASSERT_EQ(on.handles(), before) << "call " << n << ": " << interposer.describe_live();
  }
  EXPECT_GT(errors, calls / 2);  // what only frees throws nothing
  EXPECT_EQ(error_of(start), "");
}

}  // namespace
}  // namespace nodewright
