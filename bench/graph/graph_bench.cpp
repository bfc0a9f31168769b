#include "bench/graph/graph_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "bench/alternation.h"
#include "bench/graph/driver_graph.h"
#include "bench/graph/foreign_chain.h"
#include "bench/measured_work.h"
#include "graph/graph_exec.h"
#include "graph/patch.h"
#include "graph/run/captured_run.h"
#include "graph/run/eager_run.h"
#include "runtime/error.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

using F = GraphFigure;
constexpr int kWarmUp = 2;
constexpr int kLaunches = 15;            // timed one by one within a repetition; their median counts
constexpr size_t kSinglePatches = 15;    // of different nodes, timed together
constexpr float kStep = 1.0f / 1024.0f;  // small: values of a fork_join grow with every trunk node

class Samples {
 public:
  void add(F figure, double us) { values_[static_cast<size_t>(figure)].push_back(us); }
  void summarise(GraphBenchLine& line) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      line.us[i] = spread_of(values_[i]);
      line.measured[i] = !values_[i].empty();
    }
  }

 private:
  std::array<std::vector<double>, static_cast<size_t>(F::kCount)> values_;
};

struct Built {
  double launch_us = 0, finish_us = 0, add_us = 0;
  std::vector<Node<Saxpy>> nodes;
  std::unique_ptr<ExplicitGraph> exec;
};

Built build(Device& device, const SaxpyGraph& graph, EdgePolicy policy) {
  Built built;
  std::optional<GraphBuilder> g;
  built.launch_us = us_of([&] {
    g.emplace(device, graph.name());
    built.nodes = graph.add_to(*g, kStep);
  });
  std::optional<Plan> plan;
  built.finish_us = us_of([&] { plan = std::move(*g).finish(policy); });
  g.reset();
  built.add_us = us_of([&] { built.exec = std::make_unique<ExplicitGraph>(std::move(*plan)); }) -
                 built.exec->stats().instantiate_ms * 1e3;
  return built;
}

struct ForeignBuilt {
  double launch_us = 0, build_us = 0, add_us = 0;
  std::vector<ForeignChain::Node> nodes;
  std::unique_ptr<ExplicitGraph> exec;
};

ForeignBuilt build(Device& device, const ForeignChain& chain) {
  ForeignBuilt built;
  std::optional<GraphBuilder> g;
  built.launch_us = us_of([&] {
    g.emplace(device, "foreign");
    built.nodes = chain.add_to(*g, kStep);
  });
  std::optional<Plan> plan;
  const double finish_us = us_of([&] { plan = std::move(*g).finish(EdgePolicy::full); });
  g.reset();
  built.add_us = us_of([&] { built.exec = std::make_unique<ExplicitGraph>(std::move(*plan)); }) -
                 built.exec->stats().instantiate_ms * 1e3;
  built.build_us = built.launch_us + finish_us + built.add_us;
  return built;
}

double upload_us(ExplicitGraph& exec, const Stream& stream) {
  return us_of([&] {
    exec.upload(stream);
    stream.synchronize();
  });
}

// One shape, width and length, measured from every side.
class CaseBench {
 public:
  CaseBench(Device& device, const Stream& stream, KernelCache& kernels, const GraphCase& measured,
            const GraphBenchOptions& options)
      : device_(device),
        stream_(stream),
        options_(options),
        graph_(device, kernels, measured.shape, measured.width, measured.nodes),
        full_plan_(graph_.plan(EdgePolicy::full, kStep)),
        plan_(graph_.plan(EdgePolicy::programmatic, kStep)),
        changed_plan_(graph_.plan(EdgePolicy::programmatic, 2 * kStep)),
        full_(full_plan_),
        captured_full_(full_plan_, stream),
        captured_(plan_, stream),
        recaptured_(plan_, stream),
        built_(build(device, graph_, EdgePolicy::programmatic)),
        patched_(build(device, graph_, EdgePolicy::programmatic)),
        updated_(plan_),
        by_hand_(plan_),
        start_(device, "bench.start", true),
        end_(device, "bench.end", true) {
    for (ExplicitGraph* exec : {&full_, built_.exec.get(), patched_.exec.get(), &updated_, &by_hand_})
      exec->upload(stream);
    line_.measured_case = measured;
    line_.edges = plan_.edges.size();
    line_.programmatic_edges = built_.exec->stats().programmatic_edges;
    stream.synchronize();
  }

  GraphBenchLine measure() {
    check_that_all_compute_the_same();
    measure_builds();
    measure_launches();
    measure_gpu_time();
    measure_changes();
    if (line_.measured_case.shape == GraphShape::chain) {
      measure_loops();
      measure_foreign();
    }
    samples_.summarise(line_);
    line_.core_moves = core_.moves();
    return line_;
  }

 private:
  using Variants = std::vector<std::function<void(bool)>>;

  void take(bool counted, F figure, double us) {
    if (counted) samples_.add(figure, us);
  }
  void run(const Variants& variants) { alternate(variants, kWarmUp, options_.repetitions, core_); }

  void check_that_all_compute_the_same() {
    const auto values_after = [&](const std::function<void()>& launch) {
      graph_.reset();
      launch();
      stream_.synchronize();
      return graph_.values();
    };
    const std::vector<float> expected = values_after([&] { run_eager(full_plan_, stream_); });
    for (const auto& [name, launch] : std::vector<std::pair<const char*, std::function<void()>>>{
             {"eager, programmatic", [&] { run_eager(plan_, stream_); }},
             {"captured, full", [&] { captured_full_.launch(stream_); }},
             {"captured, programmatic", [&] { captured_.launch(stream_); }},
             {"explicit, full", [&] { full_.launch(stream_); }},
             {"explicit, programmatic", [&] { built_.exec->launch(stream_); }}})
      if (values_after(launch) != expected)
        throw Error({.doing = "compare the ways of running",
                     .object = graph_.name(),
                     .detail = fmt::format("{} leaves other values behind than stream launches", name)});
  }

  void measure_builds() {
    run({[&](bool counted) {
           Built built = build(device_, graph_, EdgePolicy::programmatic);
           take(counted, F::builder_launch, built.launch_us);
           take(counted, F::builder_finish, built.finish_us);
           take(counted, F::driver_add, built.add_us);
           take(counted, F::build, built.launch_us + built.finish_us + built.add_us);
           take(counted, F::instantiate, built.exec->stats().instantiate_ms * 1e3);
           take(counted, F::upload, upload_us(*built.exec, stream_));
           take(counted, F::first_launch, us_of([&] { built.exec->launch(stream_); }));
           stream_.synchronize();
         },
         [&](bool counted) {
           ExplicitGraph exec(full_plan_);
           take(counted, F::instantiate_full, exec.stats().instantiate_ms * 1e3);
         },
         [&](bool counted) {
           CapturedGraph captured(plan_, stream_);
           stream_.synchronize();
           take(counted, F::capture, captured.stats().capture_ms * 1e3);
           take(counted, F::capture_instantiate, captured.stats().instantiate_ms * 1e3);
           take(counted, F::capture_upload, captured.stats().upload_ms * 1e3);
         }});
  }

  double launch_us(const std::function<void()>& launch) {
    stream_.synchronize();
    const double us = us_of(launch);
    stream_.synchronize();
    return us;
  }

  void measure_launches() {
    const auto steady = [&](F figure, std::function<void()> launch) {
      return [this, figure, launch = std::move(launch)](bool counted) {
        std::vector<double> us;
        for (int i = 0; i < kLaunches; ++i) us.push_back(launch_us(launch));
        take(counted, figure, spread_of(us).median);
      };
    };
    run({steady(F::launch_explicit, [&] { built_.exec->launch(stream_); }),
         steady(F::launch_explicit_full, [&] { full_.launch(stream_); }),
         steady(F::launch_captured, [&] { captured_.launch(stream_); }),
         steady(F::submit_eager, [&] { run_eager(plan_, stream_); })});
  }

  double gpu_us(const std::function<void()>& launch, int launches) {
    stream_.synchronize();
    start_.record(stream_);
    for (int i = 0; i < launches; ++i) launch();
    end_.record(stream_);
    end_.synchronize();
    return static_cast<double>(end_.ms_since(start_)) * 1e3 / launches;
  }

  void measure_gpu_time() {
    const int launches = std::max(1, options_.nodes_a_sample / graph_.nodes());
    const auto timed = [&](F figure, std::function<void()> launch) {
      return [this, figure, launches, launch = std::move(launch)](bool counted) {
        take(counted, figure, gpu_us(launch, launches));
      };
    };
    graph_.reset();
    run({timed(F::gpu_eager_full, [&] { run_eager(full_plan_, stream_); }),
         timed(F::gpu_eager, [&] { run_eager(plan_, stream_); }),
         timed(F::gpu_captured_full, [&] { captured_full_.launch(stream_); }),
         timed(F::gpu_captured, [&] { captured_.launch(stream_); }),
         timed(F::gpu_explicit_full, [&] { full_.launch(stream_); }),
         timed(F::gpu_explicit, [&] { built_.exec->launch(stream_); })});
  }

  // Values differ from patch to patch, so that none is a change to what is there already.
  float next_step() { return kStep * static_cast<float>(1 + ++changes_ % 7); }

  void patch_some(F figure, F launch_figure, size_t stride, bool counted) {
    stream_.synchronize();
    const float step = next_step();
    PatchSet patches(*patched_.exec);
    take(counted, figure, us_of([&] {
           for (size_t i = 0; i < patched_.nodes.size(); i += stride) patches.set(patched_.nodes[i], &Saxpy::a, step);
           patches.apply();
         }));
    take(counted, launch_figure, launch_us([&] { patched_.exec->launch(stream_); }));
  }

  void measure_changes() {
    for (size_t i = 0; i < patched_.nodes.size(); i += 1 + patched_.nodes.size() / kSinglePatches)
      samples_.add(F::patch_first, us_of([&] { patched_.exec->patch(patched_.nodes[i], &Saxpy::a, kStep); }));
    run({[&](bool counted) {
           stream_.synchronize();
           const float step = next_step();
           const double us = us_of([&] {
             for (size_t i = 0; i < kSinglePatches; ++i)
               patched_.exec->patch(patched_.nodes[i * 37 % patched_.nodes.size()], &Saxpy::a, step);
           });
           take(counted, F::patch_one, us / kSinglePatches);
           patched_.exec->launch(stream_);
           stream_.synchronize();
           patched_.exec->patch(patched_.nodes[patched_.nodes.size() / 2], &Saxpy::a, next_step());
           take(counted, F::launch_after_one, launch_us([&] { patched_.exec->launch(stream_); }));
         },
         [&](bool counted) { patch_some(F::patch_tenth, F::launch_after_tenth, 10, counted); },
         [&](bool counted) { patch_some(F::patch_all, F::launch_after_all, 1, counted); },
         [&](bool counted) {
           stream_.synchronize();
           if (!line_.update_problem.empty()) return;
           try {
             recaptured_.recapture(++changes_ % 2 == 0 ? plan_ : changed_plan_, stream_);
           } catch (const Error& error) {
             line_.update_problem = error.what();
             return;
           }
           take(counted, F::recapture, recaptured_.stats().capture_ms * 1e3);
           take(counted, F::update, recaptured_.stats().update_ms * 1e3);
           take(counted, F::launch_after_update, launch_us([&] { recaptured_.launch(stream_); }));
         },
         [&](bool counted) {
           stream_.synchronize();
           Plan plan = ++changes_ % 2 == 0 ? plan_ : changed_plan_;
           take(counted, F::update_plan, us_of([&] { updated_.update(std::move(plan)); }));
           take(counted, F::launch_after_update_plan, launch_us([&] { updated_.launch(stream_); }));
         },
         [&](bool counted) {
           stream_.synchronize();
           const Plan& plan = ++changes_ % 2 == 0 ? plan_ : changed_plan_;
           GraphHandle graph(device_.driver());
           take(counted, F::update_plan_driver, us_of([&] {
                  graph = graph_by_driver(plan);
                  CUgraphExecUpdateResultInfo info{};
                  device_.driver().check(device_.driver().cuGraphExecUpdate(by_hand_.exec(), graph.get(), &info),
                                         "cuGraphExecUpdate", "update graph", plan.name);
                }));
         },
         [&](bool counted) {
           stream_.synchronize();
           const Kernel<Saxpy>& kernel = graph_.kernel(++changes_ % 2 == 0);
           const double us = us_of([&] {
             for (size_t i = 0; i < kSinglePatches; ++i)
               patched_.exec->patch(patched_.nodes[i * 37 % patched_.nodes.size()], kernel);
           });
           take(counted, F::patch_kernel, us / kSinglePatches);
           patched_.exec->launch(stream_);
           stream_.synchronize();
         }});
  }

  void measure_loops() {
    const int rounds = std::clamp(options_.nodes_a_sample / (graph_.nodes() + 1), 2, 1000);
    ExplicitGraph full(graph_.loop(EdgePolicy::full, kStep, rounds)),
        programmatic(graph_.loop(EdgePolicy::programmatic, kStep, rounds));
    graph_.reset();
    Variants variants;
    for (const auto& [figure, exec] : {std::pair{F::loop_full, &full}, std::pair{F::loop, &programmatic}}) {
      exec->upload(stream_);
      variants.push_back([this, figure = figure, exec = exec, rounds](bool counted) {
        take(counted, figure, gpu_us([&] { exec->launch(stream_); }, 1) / rounds);
        if (graph_.rounds_done() != rounds)
          throw Error({.doing = "run loop",
                       .object = exec->plan().name,
                       .detail = fmt::format("{} of {} rounds were done", graph_.rounds_done(), rounds)});
      });
    }
    run(variants);
  }

  // A chain of foreign kernels, its turns beside those of ours, which count above.
  void measure_foreign() {
    ForeignChain chain(device_, graph_.launch_shape(), graph_.nodes());
    const ForeignBuilt foreign = build(device_, chain);
    foreign.exec->upload(stream_);
    chain.reset();
    graph_.reset();
    foreign.exec->launch(stream_);
    full_.launch(stream_);
    stream_.synchronize();
    if (const std::vector<float> ours = graph_.values(), theirs = chain.values();
        !std::equal(theirs.begin(), theirs.end(), ours.begin()))
      throw Error({.doing = "compare the ways of running",
                   .object = graph_.name(),
                   .detail = "a chain of foreign kernels leaves other values behind than one of ours"});
    const int launches = std::max(1, options_.nodes_a_sample / graph_.nodes());
    run({[&](bool) { build(device_, graph_, EdgePolicy::full); },
         [&](bool counted) {
           const ForeignBuilt built = build(device_, chain);
           take(counted, F::foreign_launch, built.launch_us);
           take(counted, F::foreign_add, built.add_us);
           take(counted, F::foreign_build, built.build_us);
         },
         [&](bool counted) {
           take(counted, F::gpu_foreign_full, gpu_us([&] { foreign.exec->launch(stream_); }, launches));
         },
         [&](bool counted) {
           const auto patch = [&] {
             const float step = next_step();
             return us_of([&] {
               for (size_t i = 0; i < kSinglePatches; ++i)
                 foreign.exec->patch<"a">(foreign.nodes[i * 37 % foreign.nodes.size()], step);
             });
           };
           stream_.synchronize();
           patch();  // as of ours, which patch_all has touched before
           take(counted, F::patch_foreign_one, patch() / kSinglePatches);
           foreign.exec->launch(stream_);
           stream_.synchronize();
         }});
  }

  Device& device_;
  const Stream& stream_;
  const GraphBenchOptions& options_;
  SaxpyGraph graph_;
  Plan full_plan_, plan_, changed_plan_;
  ExplicitGraph full_;
  CapturedGraph captured_full_, captured_, recaptured_;
  Built built_, patched_;
  ExplicitGraph updated_, by_hand_;
  Event start_, end_;
  GraphBenchLine line_;
  Samples samples_;
  SteadyCore core_;
  int changes_ = 0;
};

}  // namespace

std::string_view to_string(GraphFigure figure) {
  // clang-format off
  static constexpr std::array<std::string_view, static_cast<size_t>(F::kCount)> kNames = {
      "builder_launch", "builder_finish", "driver_add", "build", "instantiate", "upload", "instantiate_full",
      "capture", "capture_instantiate", "capture_upload", "first_launch", "launch_explicit", "launch_explicit_full",
      "launch_captured", "submit_eager", "gpu_eager_full", "gpu_eager", "gpu_captured_full", "gpu_captured",
      "gpu_explicit_full", "gpu_explicit", "patch_first", "patch_one", "launch_after_one", "patch_tenth",
      "launch_after_tenth", "patch_all", "launch_after_all", "recapture", "update", "launch_after_update",
      "update_plan", "update_plan_driver", "launch_after_update_plan", "patch_kernel",
      "loop_full", "loop", "foreign_launch", "foreign_add", "foreign_build", "gpu_foreign_full", "patch_foreign_one"};
  // clang-format on
  return kNames.at(static_cast<size_t>(figure));
}

FirstBuild first_build(Device& device, const Stream& stream, KernelCache& kernels, int nodes) {
  const SaxpyGraph graph(device, kernels, GraphShape::chain, KernelWidth::tiny, nodes);
  const Built built = build(device, graph, EdgePolicy::programmatic);
  FirstBuild first{.nodes = nodes,
                   .builder_launch_us = built.launch_us,
                   .builder_finish_us = built.finish_us,
                   .driver_add_us = built.add_us,
                   .instantiate_us = built.exec->stats().instantiate_ms * 1e3};
  first.upload_us = upload_us(*built.exec, stream);
  first.first_launch_us = us_of([&] { built.exec->launch(stream); });
  stream.synchronize();
  return first;
}

double bytes_per_exec(const Device& device, const Stream& stream, const Plan& plan, int most, KeptGraphs& kept) {
  constexpr int kSteps = 24;  // 48 MiB, of which a graph is counted to within a step at the most
  uint64_t at_first_step = 0, at_last_step = 0, least = device.free_bytes();
  int first_step = 0, last_step = 0, steps = 0;
  for (int graphs = 1; graphs <= most && steps <= kSteps; ++graphs) {
    kept.push_back(std::make_unique<ExplicitGraph>(plan));
    kept.back()->upload(stream);
    stream.synchronize();
    const uint64_t free = device.free_bytes();
    if (free >= least) continue;
    least = free;
    if (steps++ == 0) at_first_step = free, first_step = graphs;
    at_last_step = free, last_step = graphs;
  }
  return last_step == first_step ? 0 : static_cast<double>(at_first_step - at_last_step) / (last_step - first_step);
}

double bytes_per_exec(Device& device, const Stream& stream, KernelCache& kernels, const GraphCase& measured, int most,
                      KeptGraphs& kept) {
  const SaxpyGraph graph(device, kernels, measured.shape, measured.width, measured.nodes);
  return bytes_per_exec(device, stream, graph.plan(EdgePolicy::programmatic, kStep), most, kept);
}

GraphBenchLine bench_graph(Device& device, const Stream& stream, KernelCache& kernels, const GraphCase& measured,
                           const GraphBenchOptions& options) {
  return CaseBench(device, stream, kernels, measured, options).measure();
}

}  // namespace nodewright
