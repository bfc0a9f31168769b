// Requests with LoRA adapters on an engine of several devices: each has the tokens that it has alone, whatever is
// loaded and unloaded beside it, and a load that fails leaves all devices as they were.
#include <map>
#include <optional>

#include "engine/engine.h"
#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

const std::vector<std::string> kTeamAdapters = {"llama_all", "llama_root", "llama_layer", "llama_linear"};

struct AdaptedRequest {
  std::string adapter;  // or empty
  Tokens prompt;
  int64_t tokens = 6;
};

EngineOptions team_adapter_options(int slots = 2) {
  EngineOptions options{.max_batch = 4, .step_tokens = 24, .buckets = {1, 4, 24}, .max_context = 3 * kPageTokens};
  options.numerics = Numerics::invariant;
  options.max_adapters = slots;
  options.max_adapter_rank = kGoldenRank;
  return options;
}

class TeamOfAdapters {
 protected:
  explicit TeamOfAdapters(const std::string& device, Observe observe = Observe::no)
      : loaded_(golden_folder(base_of(kTeamAdapters[0])), 2, device, false, observe) {}

  std::unique_ptr<Engine> engine(const EngineOptions& options, size_t adapters = kTeamAdapters.size()) {
    auto engine = std::make_unique<Engine>(loaded_.places, options);
    for (size_t i = 0; i < adapters; ++i) load(*engine, kTeamAdapters[i]);
    return engine;
  }
  static void load(Engine& engine, const std::string& name, const std::string& as = "") {
    engine.load_adapter(as.empty() ? name : as, engine.read_adapter(adapter_folder(name)));
  }
  static RequestId submit(Engine& engine, const AdaptedRequest& request) {
    const auto submitted =
        engine.submit({.prompt = request.prompt, .max_tokens = request.tokens, .adapter = request.adapter});
    EXPECT_TRUE(submitted.id) << submitted.reason;
    return submitted.id.value_or(0);
  }
  static AdaptedRequest request(const std::string& adapter, size_t length, uint64_t salt) {
    return {adapter, some_tokens(length, 131, salt)};
  }
  static std::map<RequestId, Resolution> ends(Engine& engine) {
    while (engine.advance()) engine.pipeline().check();
    std::map<RequestId, Resolution> all;
    for (Resolution& end : engine.take_resolutions()) all.emplace(end.request, std::move(end));
    return all;
  }
  // On an engine that serves one request at a time, and has found nothing in its cache.
  Tokens alone(const AdaptedRequest& request) {
    if (!alone_) {
      EngineOptions options = team_adapter_options(static_cast<int>(kTeamAdapters.size()));
      options.max_batch = 1, options.buckets = {1}, options.step_tokens = 1, options.prefix_cache = false;
      alone_ = engine(options);
    }
    const RequestId id = submit(*alone_, request);
    return ends(*alone_).at(id).outputs;
  }
  void expect_alone(const std::map<RequestId, Resolution>& ends, RequestId id, const AdaptedRequest& request) {
    ASSERT_TRUE(ends.contains(id));
    EXPECT_EQ(ends.at(id).reason, EndReason::length) << ends.at(id).message;
    EXPECT_EQ(ends.at(id).outputs, alone(request)) << "adapter '" << request.adapter << "'";
  }

  LoadedTeam loaded_;
  std::unique_ptr<Engine> alone_;
};

class TwoDevicesEngineAdapters : public testing::Test, protected TeamOfAdapters {
 protected:
  TwoDevicesEngineAdapters() : TeamOfAdapters(test_device()) {}
};

// Fourteen requests with four adapters or none, and slots for two; the second setting also drafts, and chooses in the
// second graph.
TEST_F(TwoDevicesEngineAdapters, EveryRequestHasTheTokensThatItHasAlone) {
  std::vector<EngineOptions> settings(2, team_adapter_options());
  settings[1].speculate = 3;
  settings[1].choices = true;
  for (const EngineOptions& options : settings) {
    SCOPED_TRACE(&options - settings.data());
    const auto engine = this->engine(options);
    std::map<RequestId, AdaptedRequest> requests;
    for (size_t i = 0; i < 14; ++i) {
      const AdaptedRequest one = request(i % 5 == 4 ? "" : kTeamAdapters[i % 5], 2 + 7 * (i % 6), i);
      requests.emplace(submit(*engine, one), one);
      if (i % 3 == 0) engine->advance();
    }
    const auto ends = this->ends(*engine);
    for (const auto& [id, one] : requests) expect_alone(ends, id, one);
    for (const LoadedAdapter& one : engine->adapters()) EXPECT_EQ(one.requests, 0) << one.name;
  }
  // Else they would say nothing.
  for (const std::string& name : kTeamAdapters)
    EXPECT_NE(alone(request(name, 16, 2)), alone(request("", 16, 2))) << name;
}

using TwoDevicesEngineAdaptersSweep = TwoDevicesEngineAdapters;

TEST_F(TwoDevicesEngineAdaptersSweep, PagesAreFoundUnderTheSameAdapterAlone) {
  const auto engine = this->engine(team_adapter_options());
  for (const std::string name : {"", "llama_all", "llama_root"}) {
    const AdaptedRequest one = request(name, 2 * kPageTokens + 3, 7);
    for (const int64_t found : {int64_t{0}, 2 * kPageTokens}) {
      const RequestId id = submit(*engine, one);
      const auto ends = this->ends(*engine);
      expect_alone(ends, id, one);
      EXPECT_EQ(ends.at(id).found_tokens, found) << "adapter '" << name << "'";
    }
  }
}

TEST_F(TwoDevicesEngineAdapters, TheyComeAndGoWhileOthersDecode) {
  const auto engine = this->engine(team_adapter_options(1), 1);
  const AdaptedRequest plain = request("", 5, 1), first = request(kTeamAdapters[0], 9, 2);
  const RequestId a = submit(*engine, plain), b = submit(*engine, first);
  for (int i = 0; i < 5; ++i) engine->advance();
  EXPECT_TRUE(engine->unload_adapter(kTeamAdapters[0]));
  EXPECT_TRUE(engine->adapters().empty());
  // Another under the same name waits for the slot.
  load(*engine, kTeamAdapters[1], kTeamAdapters[0]);
  const AdaptedRequest second = request(kTeamAdapters[0], 30, 3);
  const RequestId c = submit(*engine, second);
  const auto ends = this->ends(*engine);
  expect_alone(ends, a, plain);
  expect_alone(ends, b, first);
  expect_alone(ends, c, {kTeamAdapters[1], second.prompt});
}

TEST_F(TwoDevicesEngineAdapters, ARebuildKeepsThem) {
  const auto engine = this->engine(team_adapter_options(), 2);
  const AdaptedRequest one = request(kTeamAdapters[1], 12, 5);
  const RequestId id = submit(*engine, one);
  for (int i = 0; i < 3; ++i) engine->advance();
  engine->pause();
  while (engine->pipeline().mode() != PipelineMode::paused) engine->advance();
  engine->rebuild_graphs({.buckets = {2, 4, 24}});
  engine->resume();
  expect_alone(ends(*engine), id, one);
}

TEST_F(TwoDevicesEngineAdapters, EveryDeviceHasSlotsForItsPart) {
  const auto engine = this->engine(team_adapter_options(), 1);
  const AdapterLimits limits = adapter_limits(2, kGoldenRank);
  const uint64_t whole = AdapterLayout(read_model_config(golden_folder(base_of(kTeamAdapters[0]))), limits).bytes();
  ASSERT_EQ(engine->slots().ranks(), 2u);
  for (size_t rank = 0; rank < 2; ++rank) {
    const uint64_t bytes = engine->slots().adapters(rank).bytes();
    EXPECT_EQ(bytes, AdapterLayout(loaded_.models[rank].config(), limits).bytes());
    EXPECT_LT(bytes, whole);
  }
  EXPECT_EQ(engine->slots().memory().adapters, engine->slots().adapters().bytes());
}

TEST_F(TwoDevicesEngineAdapters, AnImageOfAnotherNumberOfDevicesIsRefused) {
  const auto engine = this->engine(team_adapter_options(), 0);
  const ModelConfig& config = loaded_.models[0].config();
  const LoraAdapter adapter = LoraAdapter::open(adapter_folder(kTeamAdapters[0]), config, kGoldenRank);
  const auto image =
      std::make_shared<const AdapterImage>(*loaded_.devices[0], adapter, config, engine->slots().adapters().layout());
  EXPECT_EQ(error_of([&] { engine->load_adapter("a", image); }),
            "cannot load adapter 'a': it was read for 1 devices, and the engine has 2; try: read it with this engine");
  EXPECT_TRUE(engine->adapters().empty());
}

class TeamEngineAdaptersOnCpuDriver : public testing::Test, protected TeamOfAdapters {
 protected:
  TeamEngineAdaptersOnCpuDriver() : TeamOfAdapters("cpu", Observe::yes) {}

  // The driver's calls of a load, while `call` of them fails; UINT64_MAX: none does.
  std::vector<std::string> calls_of_load(Engine& engine, const std::shared_ptr<const AdapterImage>& image,
                                         uint64_t call, std::string& error) {
    Interposer& interposer = *loaded_.opened.interposer;
    std::vector<std::string> names;
    interposer.trace_to([&](std::string_view line) {
      const size_t begin = line.find(' ') + 1;
      names.emplace_back(line.substr(begin, line.find('(') - begin));
    });
    if (call != UINT64_MAX) interposer.fail_call(call, CUDA_ERROR_UNKNOWN);
    error = error_of([&] { engine.load_adapter("late", image); });
    interposer.trace_to({});
    interposer.fail_none();
    return names;
  }
};

// Every call of a load fails in its turn, beside a request that decodes: one error, the adapter is nowhere, the next
// load gets the slot and serves as if nothing had been.
TEST_F(TeamEngineAdaptersOnCpuDriver, ALoadThatFailsOnOneDeviceIsOnNone) {
  const auto engine = this->engine(team_adapter_options(64), 1);  // each that is loaded gets one that nobody had
  const auto image = engine->read_adapter(adapter_folder(kTeamAdapters[1]));
  const AdaptedRequest first = request(kTeamAdapters[0], 9, 2), late = request(kTeamAdapters[1], 9, 2);
  std::string error;
  const size_t calls = calls_of_load(*engine, image, UINT64_MAX, error).size();
  ASSERT_EQ(error, "");
  ASSERT_TRUE(engine->unload_adapter("late"));
  size_t copies = 0, refused = 0;
  int slot = 2;
  for (uint64_t call = 0; call < calls; ++call) {
    const RequestId beside = submit(*engine, first);
    for (int i = 0; i < 3; ++i) engine->advance();
    const std::string name = calls_of_load(*engine, image, call, error).at(call);
    SCOPED_TRACE("call " + std::to_string(call) + " " + name + ": " + error);
    copies += name.starts_with("cuMemcpy");
    if (error.empty()) {  // who goes back to the context of before does not ask whether it could
      EXPECT_EQ(name, "cuCtxSetCurrent");
      EXPECT_TRUE(engine->unload_adapter("late"));
      ++slot;
    } else {
      ++refused;
      EXPECT_NE(error.find("CUDA_ERROR_UNKNOWN"), std::string::npos);
      ASSERT_EQ(engine->adapters().size(), 1u);
      EXPECT_FALSE(engine->unload_adapter("late"));
      EXPECT_EQ(engine->submit({.prompt = {1}, .adapter = "late"}).reason, "no adapter 'late' is loaded");
    }
    engine->load_adapter("late", image);
    EXPECT_EQ(engine->adapters().back().slot, slot++) << "a slot was lost";
    const RequestId id = submit(*engine, {"late", late.prompt});
    const auto ends = this->ends(*engine);
    expect_alone(ends, beside, first);
    expect_alone(ends, id, late);
    ASSERT_TRUE(engine->unload_adapter("late"));
  }
  EXPECT_EQ(copies, 2u) << "one for each device";
  EXPECT_GE(refused, 4u);
}

// No launch waits for the driver while it locks or unlocks pages.
TEST_F(TeamEngineAdaptersOnCpuDriver, ThoseThatComeTakeTheMemoryOfThoseThatHaveGone) {
  const auto engine = this->engine(team_adapter_options(), 2);
  const auto calls = [&] {
    const Interposer& interposer = *loaded_.opened.interposer;
    return std::pair{interposer.calls(DriverEntry::cuMemHostRegister),
                     interposer.calls(DriverEntry::cuMemHostUnregister)};
  };
  auto before = calls();
  ASSERT_GE(before.first, 4u) << "two images on two devices";
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(engine->unload_adapter(kTeamAdapters[i]));
    load(*engine, kTeamAdapters[i + 2]);
    const AdaptedRequest one = request(kTeamAdapters[i + 2], 9, i);
    const RequestId id = submit(*engine, one);
    EXPECT_EQ(calls(), before);
    expect_alone(ends(*engine), id, one);  // by another engine, which locks pages of its own
    before = calls();
  }
}

TEST_F(TeamEngineAdaptersOnCpuDriver, NothingIsLeftBehind) {
  { const auto first = engine(team_adapter_options(), 1); }  // loads the kernels
  const std::string handles = loaded_.opened.interposer->describe_live();
  const auto free_of = [&] { return std::pair{loaded_.devices[0]->free_bytes(), loaded_.devices[1]->free_bytes()}; };
  const auto free = free_of();
  {
    const auto engine = this->engine(team_adapter_options());
    for (const std::string& name : kTeamAdapters) submit(*engine, request(name, 9, 1));
    for (int i = 0; i < 6; ++i) engine->advance();
    for (const std::string& name : kTeamAdapters) engine->unload_adapter(name);
  }
  EXPECT_EQ(free_of(), free);
  EXPECT_EQ(loaded_.opened.interposer->describe_live(), handles);
}

}  // namespace
}  // namespace nodewright
