#include "bench/steps/step_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "bench/paired_times.h"
#include "bench/steps/decode_bench.h"
#include "engine/device/step_limits.h"
#include "graph/dump/graph_dump.h"
#include "runtime/error.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

// A number of a tuning, with the values that are tried.
struct Number {
  std::string part, name;
  std::vector<std::pair<std::string, std::function<void(StepTuning&)>>> candidates;
};

template <class Part>
Number number(const std::string& part, const std::string& name, Part StepTuning::*of, int64_t Part::*field,
              const std::vector<int64_t>& values) {
  Number number{part, name, {}};
  for (const int64_t value : values)
    number.candidates.emplace_back(std::to_string(value), [=](StepTuning& tuning) { tuning.*of.*field = value; });
  return number;
}

template <class Form>
Number number(const std::string& part, const std::string& name, ProjectionTuning StepTuning::*of,
              Form ProjectionTuning::*form, int64_t Form::*field, const std::vector<int64_t>& values) {
  Number number{part, name, {}};
  for (const int64_t value : values)
    number.candidates.emplace_back(std::to_string(value), [=](StepTuning& tuning) { tuning.*of.*form.*field = value; });
  return number;
}

// In the order in which they are tried: what changes most comes first.
std::vector<Number> all_numbers() {
  std::vector<Number> numbers;
  Number arithmetic{"arithmetic", "arithmetic", {}};
  for (const auto& [value, name] :
       {std::pair{Arithmetic::matvec, "matvec"}, {Arithmetic::tiles, "tiles"}, {Arithmetic::products, "products"}})
    arithmetic.candidates.emplace_back(name, [value = value](StepTuning& tuning) { tuning.arithmetic = value; });
  numbers.push_back(std::move(arithmetic));
  numbers.push_back(number("attend", "attend.splits", &StepTuning::attend, &AttendTuning::splits,
                           {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}));
  numbers.push_back(number("attend", "attend.ring", &StepTuning::attend, &AttendTuning::ring, {2, 3, 4, 6, 8}));
  numbers.push_back(number("attend", "attend.warps", &StepTuning::attend, &AttendTuning::warps, {2, 4, 8, 16}));
  numbers.push_back(number("shared", "shared.carveout", &StepTuning::shared, &SharedTuning::carveout,
                           {14, 28, 43, 57, 71, 85, 100}));  // of 228 KiB: 32, 64, 100, 132, 164, 196, 228
  for (const auto& [part, of] : {std::pair{"gate_up", &StepTuning::gate_up},
                                 {"down", &StepTuning::down},
                                 {"head", &StepTuning::head},
                                 {"qkv", &StepTuning::qkv},
                                 {"out", &StepTuning::out}}) {
    const std::string name = part;
    const auto matvec = &ProjectionTuning::matvec;
    const auto tile = &ProjectionTuning::tile;
    numbers.push_back(number(name, name + ".matvec.threads", of, matvec, &MatvecTuning::threads,
                             {64, 96, 128, 160, 192, 224, 256, 320, 384}));
    numbers.push_back(number(name, name + ".matvec.batch", of, matvec, &MatvecTuning::batch, {2, 4, 8, 16}));
    numbers.push_back(
        number(name, name + ".matvec.blocks_per_sm", of, matvec, &MatvecTuning::blocks_per_sm, {1, 2, 3, 4}));
    numbers.push_back(number(name, name + ".tile.ring", of, tile, &TileTuning::ring, {2, 3, 4, 5, 6}));
    numbers.push_back(number(name, name + ".tile.rows", of, tile, &TileTuning::rows, {8, 16}));
    numbers.push_back(number(name, name + ".tile.piece", of, tile, &TileTuning::piece, {1, 2, 3, 4, 6, 8}));
    numbers.push_back(number(name, name + ".tile.warps", of, tile, &TileTuning::warps, {4, 5, 6, 7, 8}));
    numbers.push_back(number(name, name + ".tile.splits", of, tile, &TileTuning::splits, {1, 2, 4, 8}));
    numbers.push_back(number(name, name + ".product.algorithm", of, &ProjectionTuning::product,
                             &ProductTuning::algorithm, {2, 3, 4, 5, 6, 7, 8}));
  }
  return numbers;
}

std::vector<Number> numbers_of(const std::vector<std::string>& parts) {
  std::vector<Number> all = all_numbers();
  if (parts.empty()) return all;
  for (const std::string& part : parts)
    if (std::ranges::none_of(all, [&](const Number& number) { return number.part == part; }))
      throw Error({.doing = "tune",
                   .object = part,
                   .detail = "a step has no such part",
                   .advice = "arithmetic, attend, shared, qkv, out, gate_up, down or head",
                   .fault = Fault::usage});
  std::erase_if(all, [&](const Number& number) { return !std::ranges::count(parts, number.part); });
  return all;
}

// A candidate that is this far behind after kSamplesToJudge samples is given up. Beside 140 candidates the best's own
// medians differed by 0.5 % (one H200, 2026-11-22, Llama-3.2-1B's sizes, 1024 keys: nodewright tune).
constexpr int kSamplesToJudge = 2;
constexpr double kFarBehind = 1.03;
constexpr int kSamplesForAnError = 3;
// As far behind as this it is not tried again when other numbers have changed.
constexpr double kHopeless = 1.06;

// Steps and their plan; once filled, they are ready to be launched again and again.
struct Candidate {
  Candidate(const ModelPlace& place, const DirectStepsOptions& options)
      : steps(place, options), plan(to_text(steps.plan())) {
    for (const PlanNode& node : steps.plan().nodes)
      if (node.kernel != nullptr) constants += to_string(node.kernel->request) + "\n";
  }

  DirectSteps steps;
  std::string plan;
  std::string constants;  // of its kernels, which the plan's text leaves out
};

class Tuner {
 public:
  Tuner(const ModelPlace& place, const TunerOptions& options, const std::function<void(const TunerTrial&)>& told)
      : place_(place), options_(options), told_(told) {}

  // Tunes steps of `rows` rows.
  StepTuning tune(int64_t rows, const std::vector<Number>& numbers) {
    rows_ = rows;
    best_ = {};
    current_ = build({});
    fill_bucket(current_->steps, options_.context);
    compared_.clear();
    refused_.clear();
    hopeless_.clear();
    for (int round = 0; round < options_.most_rounds; ++round) {
      const StepTuning before = best_;
      for (const Number& number : numbers) try_values(number);
      if (best_ == before) break;
    }
    current_.reset();
    return best_;
  }

 private:
  DirectStepsOptions steps_options(const StepTuning& tuning) const {
    return {.bucket = rows_,
            .prefill_rows = filling_rows(options_.context),
            .slots = {.max_context = options_.context,
                      .sequences = rows_,
                      .tuning = std::make_shared<const Tuning>(
                          Tuning{.key = {}, .steps = {{rows_, tuning}}, .products = {}})}};
  }

  std::unique_ptr<Candidate> build(const StepTuning& tuning) {
    return std::make_unique<Candidate>(place_, steps_options(tuning));
  }

  StepTuning best_with(const std::function<void(StepTuning&)>& set) const {
    StepTuning tuning = best_;
    set(tuning);
    return tuning;
  }

  bool is_stopped() const { return options_.stop && options_.stop(); }
  bool is_known(const StepTuning& tuning) const { return tuning == best_ || std::ranges::count(refused_, tuning); }

  // Compiles for all values at once. What cannot be compiled is refused at its turn.
  void prepare(const Number& number) {
    std::vector<KernelRequest> requests;
    for (const auto& [value, set] : number.candidates) {
      const StepTuning tuning = best_with(set);
      if (is_known(tuning)) continue;
      try {
        for (const int64_t rows : {rows_, filling_rows(options_.context)}) {
          const StepShape shape = shape_of(*place_.model, steps_options(tuning).slots, static_cast<int>(rows), nullptr);
          std::ranges::move(decoder_kernel_requests(*place_.kernels, place_.model->config(), shape),
                            std::back_inserter(requests));
        }
      } catch (const Error&) {  // said at its turn
      }
    }
    try {
      place_.kernels->prepare_what_compiles(requests);
    } catch (const Error&) {  // thrown by the progress callback
      if (!is_stopped()) throw;
    }
  }

  void try_values(const Number& number) {
    if (is_stopped()) return;
    prepare(number);
    for (const auto& [value, set] : number.candidates) {
      if (is_stopped()) return;
      const StepTuning tuning = best_with(set);
      if (is_known(tuning) || hopeless_.contains(number.name + value)) continue;
      TunerTrial trial{.rows = rows_, .number = number.name, .value = value};
      std::unique_ptr<Candidate> candidate;
      try {
        candidate = build(tuning);
        if (!is_new(*candidate)) continue;
        fill_bucket(candidate->steps, options_.context);
      } catch (const Error& error) {  // its kernels spill registers, or need more than a block may have
        refused_.push_back(tuning);
        trial.refused = error.what();
        told_(trial);
        continue;
      }
      compare(*candidate, trial);
      if (trial.us > kHopeless * trial.best_us) hopeless_.insert(number.name + value);
      told_(trial);
      if (!trial.taken) continue;
      best_ = tuning;
      current_ = std::move(candidate);
      compared_.clear();
    }
  }

  bool is_new(const Candidate& candidate) {
    const auto built = [](const Candidate& of) { return of.plan + of.constants; };
    return built(candidate) != built(*current_) && compared_.insert(built(candidate)).second;
  }

  void compare(Candidate& candidate, TunerTrial& trial) {
    std::vector<double> ours, theirs;
    const auto far_behind = [&] {
      return trial.samples == kSamplesToJudge && spread_of(ours).median > kFarBehind * spread_of(theirs).median;
    };
    for (int i = -1; i < options_.samples && !far_behind(); ++i) {  // one round warms up
      const double before = step_us(*current_), now = step_us(candidate);
      if (i < 0) continue;
      theirs.push_back(before);
      ours.push_back(now);
      ++trial.samples;
    }
    trial.us = spread_of(ours).median;
    trial.best_us = spread_of(theirs).median;
    const PairedGain found = paired_gain(theirs, ours);
    trial.gain_us = found.gain;
    trial.error_us = found.error;
    const bool is_no_noise = options_.least_errors == 0 || (trial.samples >= kSamplesForAnError &&
                                                            trial.gain_us > options_.least_errors * trial.error_us);
    trial.taken = is_no_noise && trial.gain_us > options_.least_gain * trial.best_us;
  }

  double step_us(Candidate& candidate) {
    const Stream& stream = candidate.steps.device().compute();
    start_.record(stream);
    for (int i = 0; i < options_.launches_per_sample; ++i) candidate.steps.run().launch();
    end_.record(stream);
    end_.synchronize();
    return 1e3 * static_cast<double>(end_.ms_since(start_)) / options_.launches_per_sample;
  }

  const ModelPlace place_;
  const TunerOptions& options_;
  const std::function<void(const TunerTrial&)>& told_;
  Event start_{*place_.device, "tune.start", true}, end_{*place_.device, "tune.end", true};
  int64_t rows_ = 0;
  StepTuning best_;
  std::unique_ptr<Candidate> current_;  // of the best
  std::set<std::string> compared_;      // plans with their constants, against the best
  std::vector<StepTuning> refused_;
  std::set<std::string> hopeless_;  // names and values
};

}  // namespace

Tuning tune_steps(Device& device, KernelCache& kernels, const DecoderModel& model, const TunerOptions& options,
                  const std::function<void(const TunerTrial&)>& told) {
  const std::vector<Number> numbers = numbers_of(options.parts);
  Tuning tuning{
      .key = {.device = device.properties().name, .model = model_sizes(model.config())}, .steps = {}, .products = {}};
  Tuner tuner({&device, &kernels, &model}, options, told);
  for (const int64_t rows : options.rows) {
    if (options.stop && options.stop()) break;
    tuning.steps[rows] = tuner.tune(rows, numbers);
  }
  return tuning;
}

}  // namespace nodewright
