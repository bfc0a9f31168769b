// Plans of every kind of node that run, on the CPU driver or on the device that $NODEWRIGHT_TEST_DEVICE names, and are
// compared with the host model.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <list>
#include <memory>

#include "graph/graph_builder.h"
#include "graph/plan_run.h"
#include "runtime/calls/cpu_driver_api.h"
#include "runtime/device_selection.h"
#include "runtime/event.h"
#include "tests/graph/kernel_text.h"
#include "tests/graph/nodes/foreign_blend.h"
#include "tests/graph/nodes/host_model.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"

namespace nodewright {

// A device with the kernels of blend.h.
class BlendMachine {
 public:
  explicit BlendMachine(const std::string& spec) : opened(open_device(spec, Observe::yes)) {
    options.extra_sources.push_back({"tests/graph/kernels/blend.h", keep(kernel_text("blend.h"))});
    for (const char* name :
         {"blend", "hasty_blend", "accumulate", "scaled", "decide", "count", "shared_probe", "cluster_probe"})
      options.extra_sources.push_back(
          {keep("kernels_src/" + std::string(name) + ".cu"), keep(kernel_text(name + std::string(".cu")))});
    kernels = std::make_unique<KernelCache>(*opened.device, options);
    blend = kernels->kernel<Blend>("blend", blend_shape(1));
    // A checked run reports any access of a kernel that has not waited.
    const bool checked = opened.driver->is_cpu() && opened.driver->cpu_options().check_accesses;
    hasty = kernels->kernel<Blend>({checked ? "blend" : "hasty_blend", {}}, blend_shape(1));
    accumulate = kernels->kernel<Accumulate>("accumulate", blend_shape(1));
    decide = kernels->kernel<Decide>("decide", blend_shape(1));
    count = kernels->kernel<Count>("count", blend_shape(1));
    shared_probe = kernels->kernel<SharedProbe>("shared_probe", blend_shape(1));
    foreign = std::make_unique<ForeignKernel>(load_foreign_blend(*opened.device));
    foreign_other =
        std::make_unique<ForeignKernel>(load_foreign(*opened.device, "foreign_other", foreign_other_on_host));
  }

  // The kernel with the grid for `n` elements.
  Kernel<Blend> blend_of(uint64_t n) const { return {blend.loaded, blend_shape(n)}; }
  Kernel<Blend> hasty_of(uint64_t n) const { return {hasty.loaded, blend_shape(n)}; }
  Kernel<Accumulate> accumulate_of(uint64_t n) const { return {accumulate.loaded, blend_shape(n)}; }
  // As accumulate, with this factor in the place of 31.
  Kernel<Accumulate> scaled_by(int factor, uint64_t n = 1) const {
    return kernels->kernel<Accumulate>({.name = "scaled", .constants = {{"kFactor", factor}}}, blend_shape(n));
  }

 private:
  std::list<std::string> texts_;  // what the cache's sources refer to: outlives it

  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }

 public:
  KernelCacheOptions options;  // of `kernels`
  OpenedDevice opened;
  std::unique_ptr<KernelCache> kernels;
  Kernel<Blend> blend, hasty;
  Kernel<Accumulate> accumulate;
  Kernel<Decide> decide;
  Kernel<Count> count;
  Kernel<SharedProbe> shared_probe;
  std::unique_ptr<ForeignKernel> foreign, foreign_other;  // foreign_blend, foreign_other
};

// Words of device or pinned memory with names, their first values, and how they compare with the model's.
class BlendTest : public ::testing::Test {
 protected:
  using Words = View<uint32_t>;

  static void TearDownTestSuite() { machine_.reset(); }
  static BlendMachine& machine() {
    if (!machine_) machine_ = std::make_unique<BlendMachine>(spec_);
    return *machine_;
  }
  static Device& device() { return *machine().opened.device; }
  static Interposer& interposer() { return *machine().opened.interposer; }

  // `count` words of device memory, whose first values depend on the name.
  Words words(const std::string& name, uint64_t count) {
    const DeviceBuffer& buffer = device_words_.emplace_back(device(), name, count * sizeof(uint32_t));
    add_initial(name, buffer.address(), count);
    return view_of<uint32_t>(buffer);
  }
  // The same in pinned memory. A view, as for device memory, whose `data` the host may use.
  Words pinned(const std::string& name, uint64_t count) {
    const PinnedBuffer& buffer = pinned_words_.emplace_back(device(), name, count * sizeof(uint32_t));
    add_initial(name, reinterpret_cast<uint64_t>(buffer.data()), count);
    return {static_cast<uint32_t*>(buffer.data()), count};
  }
  static CopyEnd host_end(const Words& words) { return {words.address(), words.bytes(), true}; }

  // Every buffer made so far, as memory that holds a value before and after.
  void declare_all(GraphBuilder& g) const {
    for (const Initial& memory : initial_)
      g.declare({memory.name, memory.address, memory.words.size() * sizeof(uint32_t), "activation"},
                {.live_in = true, .live_out = true});
  }

  void reset() {
    stream_.synchronize();
    for (const Initial& memory : initial_) {
      if (is_pinned(memory))
        std::memcpy(reinterpret_cast<void*>(memory.address), memory.words.data(),
                    memory.words.size() * sizeof(uint32_t));
      else
        write_device(device(), memory.address, std::as_bytes(std::span(memory.words)), memory.name);
    }
  }
  HostModel model() const {
    HostModel model;
    for (const Initial& memory : initial_) model.add(memory.address, memory.words);
    return model;
  }

  std::vector<uint32_t> values(const Words& words) {
    stream_.synchronize();
    std::vector<uint32_t> held(words.count);
    read_device(device(), std::as_writable_bytes(std::span(held)), words.address(), "result");
    return held;
  }

  // The first word that differs from the model's, in words; empty when none does.
  std::string difference(HostModel& model) {
    stream_.synchronize();
    for (const Initial& memory : initial_) {
      const auto planned = model.words(memory.address, memory.words.size());
      std::vector<uint32_t> held(planned.size());
      if (is_pinned(memory))
        std::memcpy(held.data(), reinterpret_cast<const void*>(memory.address), held.size() * sizeof(uint32_t));
      else
        read_device(device(), std::as_writable_bytes(std::span(held)), memory.address, memory.name);
      for (size_t i = 0; i < held.size(); ++i)
        if (held[i] != planned[i])
          return memory.name + "[" + std::to_string(i) + "] is " + std::to_string(held[i]) + " and should be " +
                 std::to_string(planned[i]);
    }
    return "";
  }

  // Each of the plan's runs, twice over, against the model.
  void expect_runs(const Plan& plan, std::initializer_list<RunMode> modes,
                   const std::function<void(HostModel&)>& prepare = {}) {
    for (const RunMode mode : modes) {
      reset();
      HostModel reference = model();
      reference.poisons_sources = poisons(mode);
      if (prepare) prepare(reference);
      PlanRun run(plan, mode, stream_);
      for (int launch = 0; launch < 2; ++launch) {
        reference.run(plan);
        run.launch();
        EXPECT_EQ(difference(reference), "") << to_string(mode) << ", launch " << launch;
      }
      if (run.explicit_graph() != nullptr) {
        EXPECT_EQ(read_back(*run.explicit_graph()), std::vector<std::string>{});
      }
    }
  }

  // The CPU driver overwrites what a stream's copy has read, where it checks; a graph's copy may be run again.
  static bool poisons(RunMode mode) {
    const Driver& driver = *machine().opened.driver;
    return mode == RunMode::eager && driver.is_cpu() && driver.cpu_options().poison;
  }
  static bool has_clusters() { return device().properties().cc_major >= 9; }

  struct Initial {
    std::string name;
    uint64_t address = 0;
    std::vector<uint32_t> words;
  };
  bool is_pinned(const Initial& memory) const {
    return std::any_of(pinned_words_.begin(), pinned_words_.end(), [&](const PinnedBuffer& buffer) {
      return reinterpret_cast<uint64_t>(buffer.data()) == memory.address;
    });
  }
  void add_initial(const std::string& name, uint64_t address, uint64_t count) {
    Initial& memory = initial_.emplace_back(Initial{name, address, std::vector<uint32_t>(count)});
    uint32_t state = name_hash(name);
    for (uint32_t& word : memory.words) word = state = state * 1664525u + 1013904223u;
  }
  void set_initial(const Words& words, const std::vector<uint32_t>& values) {
    for (Initial& memory : initial_)
      if (memory.address == words.address()) memory.words = values;
  }

  static inline std::string spec_ = test::test_device();
  static inline std::unique_ptr<BlendMachine> machine_;  // made by the first test that asks
  std::list<DeviceBuffer> device_words_;
  std::list<PinnedBuffer> pinned_words_;
  std::vector<Initial> initial_;
  Stream stream_{device(), "test"};
};

inline constexpr std::initializer_list<RunMode> kAllRuns = {RunMode::eager, RunMode::captured, RunMode::explicit_};
// Conditional nodes cannot be captured.
inline constexpr std::initializer_list<RunMode> kUncapturedRuns = {RunMode::eager, RunMode::explicit_};

}  // namespace nodewright
