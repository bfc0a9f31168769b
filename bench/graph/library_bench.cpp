#include "bench/graph/library_bench.h"

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "bench/alternation.h"
#include "bench/measured_work.h"
#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/matmul_plan.h"

namespace nodewright {
namespace {

constexpr std::array kForms{LibraryForm::kernel, LibraryForm::graph};
constexpr int kWarmUpRounds = 2;
constexpr uint16_t kSmallest = 0x3c00;  // 2^-7 in bf16: values stay small along the chain

class ProductChain {
 public:
  ProductChain(Device& device, KernelCache& kernels, const LibraryBenchOptions& options)
      : device_(device),
        options_(options),
        product_(MatmulPlanner(device, kernels)
                     .plan("chain", {.m = options.rows, .n = options.edge, .k = options.edge, .transpose_b = true})),
        weights_(device, "weights", product_->spans().b),
        workspace_(device, "workspace", product_->workspace_bytes()) {
    for (const char* name : {"even", "odd"}) turns_.emplace_back(device, name, product_->spans().a);
    fill_with_noise(weights_, 1);
    reset();
  }

  void reset() {
    fill_with_noise(turns_[0], 2);
    fill_with_noise(turns_[1], 3);
  }
  std::vector<std::byte> result() const {
    std::vector<std::byte> bytes(turns_[0].bytes());
    read_device(device_, bytes, turns_[0].address(), "result");
    return bytes;
  }

  Plan plan() const {
    GraphBuilder g(device_, "products");
    g.declare(weights_, {.live_in = true}, "weight");
    for (const DeviceBuffer& turn : turns_) g.declare(turn, {.live_in = true, .live_out = true});
    if (workspace_.bytes() != 0) g.declare(workspace_, {}, "workspace");
    for (int i = 0; i < options_.nodes; ++i)
      g.product("p" + std::to_string(i), product_,
                {.a = view_of<bf16>(turns_[i % 2]),
                 .b = weight_of<bf16>(weights_),
                 .y = view_of<bf16>(turns_[(i + 1) % 2]),
                 .workspace = view_of<uint8_t>(workspace_)});
    return std::move(g).finish(EdgePolicy::programmatic);
  }

 private:
  void fill_with_noise(const DeviceBuffer& buffer, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<uint16_t> values(buffer.bytes() / sizeof(uint16_t));
    for (uint16_t& value : values) {
      const auto word = static_cast<uint32_t>(random());
      value = static_cast<uint16_t>(kSmallest | (word & 0x7f) | (word >> 31) << 15);
    }
    write_device(device_, buffer.address(), std::as_bytes(std::span(values)), buffer.name());
  }

  Device& device_;
  const LibraryBenchOptions& options_;
  std::shared_ptr<const MatmulPlan> product_;
  DeviceBuffer weights_, workspace_;
  std::vector<DeviceBuffer> turns_;
};

struct FormSamples {
  std::vector<double> add, instantiate, launch, gpu;
  std::unique_ptr<ExplicitGraph> exec;
};

size_t count_in_form(const ExplicitGraph& exec, LibraryForm form) {
  return form == LibraryForm::kernel ? exec.stats().library_kernels : exec.stats().library_graphs;
}

}  // namespace

std::vector<LibraryBenchLine> bench_library(Device& device, const Stream& stream, KernelCache& kernels,
                                            const LibraryBenchOptions& options) {
  ProductChain chain(device, kernels, options);
  const Event start(device, "bench.start", true), end(device, "bench.end", true);
  std::array<FormSamples, kForms.size()> samples;
  const auto measure = [&](size_t i, bool counted) {
    FormSamples& of = samples[i];
    of.exec = std::make_unique<ExplicitGraph>(chain.plan(), nullptr, kForms[i]);
    of.exec->upload(stream);
    of.exec->launch(stream);
    stream.synchronize();
    const double launch = us_of([&] { of.exec->launch(stream); });
    stream.synchronize();
    start.record(stream);
    for (int launches = 0; launches < options.launches; ++launches) of.exec->launch(stream);
    end.record(stream);
    end.synchronize();
    if (!counted) return;
    of.add.push_back(of.exec->stats().add_ms * 1e3);
    of.instantiate.push_back(of.exec->stats().instantiate_ms * 1e3);
    of.launch.push_back(launch);
    of.gpu.push_back(static_cast<double>(end.ms_since(start)) * 1e3 / options.launches);
  };
  SteadyCore core;
  const std::array<std::function<void(bool)>, kForms.size()> variants{[&](bool counted) { measure(0, counted); },
                                                                      [&](bool counted) { measure(1, counted); }};
  alternate(variants, kWarmUpRounds, options.repetitions, core);

  std::vector<LibraryBenchLine> lines;
  std::vector<std::byte> expected;
  for (size_t i = 0; i < kForms.size(); ++i) {
    const FormSamples& of = samples[i];
    chain.reset();
    of.exec->launch(stream);
    stream.synchronize();
    if (i == 0) expected = chain.result();
    if (chain.result() != expected)
      throw Error({.doing = "compare the forms of library nodes",
                   .object = "products",
                   .detail = "kernel nodes and child graphs of the same products leave different bits"});
    lines.push_back({kForms[i], count_in_form(*of.exec, kForms[i]), spread_of(of.add), spread_of(of.instantiate),
                     spread_of(of.launch), spread_of(of.gpu)});
  }
  return lines;
}

}  // namespace nodewright
