#include "bench/steps/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "bench/alternation.h"
#include "bench/measured_work.h"
#include "engine/device/step_clock.h"
#include "engine/option_range.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using EngineClock = std::chrono::steady_clock;

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// One run's single steps and what was between them on the device.
struct Round {
  std::vector<double> step_ms, gap_us;
};

// Figures of all rounds of one way.
class Rounds {
 public:
  void add(const Round& round) {
    if (!round.gap_us.empty()) {
      gap_.push_back(percentile(round.gap_us, 0.5));
      gap_p99_.push_back(percentile(round.gap_us, 0.99));
      return;  // its steps carried events
    }
    if (round.step_ms.empty()) return;
    const double sum = std::accumulate(round.step_ms.begin(), round.step_ms.end(), 0.0);
    mean_.push_back(sum / static_cast<double>(round.step_ms.size()));
    median_.push_back(percentile(round.step_ms, 0.5));
    p99_.push_back(percentile(round.step_ms, 0.99));
  }
  EngineWay figures() const {
    return {spread_of(mean_), spread_of(median_), spread_of(p99_), spread_of(gap_), spread_of(gap_p99_)};
  }

 private:
  std::vector<double> mean_, median_, p99_, gap_, gap_p99_;
};

// Times from one tick to the next.
class Ticks {
 public:
  void tick() {
    const auto now = EngineClock::now();
    if (ticked_) ms_.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
    ticked_ = true;
  }
  std::vector<double> take() { return std::move(ms_); }

 private:
  EngineClock::time_point last_;
  bool ticked_ = false;
  std::vector<double> ms_;
};

void be_busy(double us) {
  const auto until = EngineClock::now() + std::chrono::duration<double, std::micro>(us);
  while (us > 0 && EngineClock::now() < until) continue;
}

class EngineBench {
 public:
  EngineBench(std::span<const ModelPlace> places, const EngineBenchOptions& options, int64_t batch)
      : places_(places),
        device_(*places[0].device),
        model_(*places[0].model),
        options_(options),
        batch_(static_cast<int>(batch)) {}

  // The graphs, with inputs written as the engine writes them, and nothing else.
  Round bare(bool timed) {
    StepSlots slots(places_, {.buckets = BucketSet({batch_}),
                              .max_context = context(),
                              .sequences = batch_,
                              .pages = batch_ * pages_for(context()),
                              .numerics = options_.numerics,
                              .tuning = options_.tuning,
                              .mode = options_.mode,
                              .policy = options_.policy});
    slots.fill_pages(std::byte{0});
    std::vector<int32_t> pages(static_cast<size_t>(pages_for(context())));
    for (int32_t row = 0; row < batch_; ++row) {
      std::iota(pages.begin(), pages.end(), row * static_cast<int32_t>(pages.size()));
      slots.write_table(row, pages);
    }
    StepClock clock(device_, timed ? static_cast<size_t>(options_.output) : 0);
    slots.time_with(timed ? &clock : nullptr);
    Ticks ticks;
    for (int64_t step = 0; step < options_.output + 1; ++step) {
      const int slot = static_cast<int>(step % kSlots);
      if (step < options_.output) {
        for (int row = 0; row < batch_; ++row)
          write_row(slots.inputs(slot, batch_), row,
                    {.position = options_.prompt + step, .sequence = row, .output = step, .sampling = {}});
        slots.launch(
            {.slot = slot, .bucket = batch_, .live = batch_, .sampled = batch_, .copies = {}, .chooses_again = false});
        slots.sample(slot, 0);
      }
      if (step == 0) continue;
      slots.wait(1 - slot);
      ticks.tick();
    }
    return {ticks.take(), timed ? clock.gap_us() : std::vector<double>{}};
  }

  Round engine(int depth, double busy_us, bool timed) {
    Engine engine(places_, {.max_batch = batch_,
                            .step_tokens = batch_,
                            .buckets = {batch_},
                            .max_context = context(),
                            .prefix_cache = false,
                            .depth = depth,
                            .numerics = options_.numerics,
                            .mode = options_.mode,
                            .policy = options_.policy,
                            .tuning = options_.tuning});
    for (int row = 0; row < batch_; ++row) {
      std::vector<int32_t> prompt = some_tokens(options_.prompt, model_.config().vocab);
      prompt[0] = row % static_cast<int32_t>(model_.config().vocab);
      const auto [id, reason] = engine.submit({.prompt = std::move(prompt), .max_tokens = options_.output});
      if (!id) throw Error({.doing = "serve a request of", .object = "bench engine", .detail = reason});
    }
    StepClock clock(device_, timed ? static_cast<size_t>(options_.output) : 0);
    Ticks ticks;
    bool all_decode = false;
    int64_t steps = 0;
    while (engine.advance()) {
      const size_t tokens = engine.take_tokens().size();
      if (tokens == 0) continue;
      // Prompts take turns, so the first to decode are some steps ahead: measured until the first of them ends.
      if (!all_decode && is_decoding(engine.pipeline())) {
        all_decode = true;
        engine.slots().time_with(timed ? &clock : nullptr);
      }
      if (!engine.take_resolutions().empty()) break;
      be_busy(busy_us);
      if (all_decode && steps++ > 0) ticks.tick();  // the first may have been launched with a prompt's end
    }
    engine.slots().time_with(nullptr);
    std::vector<double> gaps = timed ? clock.gap_us() : std::vector<double>{};
    return {ticks.take(), std::move(gaps)};
  }

 private:
  int64_t context() const { return std::max(options_.prompt + options_.output, options_.max_context); }

  bool is_decoding(const PipelineState& pipeline) const {
    return pipeline.waiting().empty() && pipeline.admitted().size() == static_cast<size_t>(batch_) &&
           std::ranges::all_of(pipeline.admitted(), [&](RequestId id) {
             return pipeline.find(id)->phase() == RequestPhase::decoding && !pipeline.find(id)->outputs().empty();
           });
  }

  std::span<const ModelPlace> places_;  // by rank
  Device& device_;                      // of the first
  const DecoderModel& model_;
  const EngineBenchOptions& options_;
  int batch_;
};

void check_options(const EngineBenchOptions& options, const ModelConfig& config) {
  const auto refuse = [](const char* object, std::string detail) {
    throw Error({.doing = "use", .object = object, .detail = std::move(detail), .fault = Fault::usage});
  };
  if (options.prompt < 1) refuse("--prompt", "it is less than 1");
  if (options.output < 8) refuse("--output", "it is less than 8");
  if (options.prompt + options.output > config.max_position)
    refuse("--prompt and --output", fmt::format("{} and {} tokens, the model's context is {}", options.prompt,
                                                options.output, config.max_position));
  for (const int64_t batch : options.batches)
    if (batch < 1 || batch > kMostRows) refuse("--batch", fmt::format("{} is outside 1 to {}", batch, kMostRows));
}

}  // namespace

std::vector<EngineBenchLine> bench_engine(std::span<const ModelPlace> places, const EngineBenchOptions& options,
                                          const std::function<void(const EngineBenchLine&)>& told) {
  check_options(options, places[0].model->config());
  SteadyCore core;
  std::vector<EngineBenchLine> lines;
  for (const int64_t batch : options.batches) {
    EngineBench bench(places, options, batch);
    std::array<Rounds, 5> rounds;
    const auto way = [&](size_t i, const std::function<Round(bool timed)>& run) {
      return [&rounds, i, run](bool counted) {
        if (counted) rounds[i].add(run(false));
      };
    };
    const std::array<std::function<Round(bool)>, 5> runs = {
        [&](bool timed) { return bench.bare(timed); },
        [&](bool timed) { return bench.engine(kSlots, 0, timed); },
        [&](bool timed) { return bench.engine(1, 0, timed); },
        [&](bool timed) { return bench.engine(kSlots, options.busy_us, timed); },
        [&](bool timed) { return bench.engine(1, options.busy_us, timed); },
    };
    std::vector<std::function<void(bool)>> variants;
    for (size_t i = 0; i < runs.size(); ++i) variants.push_back(way(i, runs[i]));
    bench.bare(false);  // compiles, and warms up
    alternate(variants, 0, options.rounds, core);
    for (size_t i = 0; i < runs.size(); ++i) rounds[i].add(runs[i](true));
    lines.push_back({.batch = batch,
                     .bare = rounds[0].figures(),
                     .pipelined = rounds[1].figures(),
                     .one_at_a_time = rounds[2].figures(),
                     .busy_pipelined = rounds[3].figures(),
                     .busy_one_at_a_time = rounds[4].figures()});
    told(lines.back());
  }
  return lines;
}

}  // namespace nodewright
