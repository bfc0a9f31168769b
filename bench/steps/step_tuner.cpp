#include "bench/steps/step_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <ranges>
#include <set>
#include <utility>

#include "bench/paired_times.h"
#include "bench/steps/decode_bench.h"
#include "bench/steps/prompt_step.h"
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

constexpr std::pair<const char*, ProjectionTuning StepTuning::*> kProducts[] = {{"gate_up", &StepTuning::gate_up},
                                                                                {"down", &StepTuning::down},
                                                                                {"head", &StepTuning::head},
                                                                                {"qkv", &StepTuning::qkv},
                                                                                {"out", &StepTuning::out}};

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
  for (const auto& [part, of] : kProducts) {
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
    if (name != "head")  // held by one block
      numbers.push_back(number(name, name + ".tile.splits", of, tile, &TileTuning::splits, {1, 2, 4, 8}));
  }
  return numbers;
}

constexpr int kProposalsToTry = 16;

// The algorithms that the library proposes for each of its products in such a step.
std::vector<Number> product_numbers(const ModelPlace& place, const StepShape& shape) {
  std::map<std::string, Number> found;
  const DecoderKernels kernels = decoder_kernels(*place.kernels, place.model->config(), shape);
  const auto add = [&](const std::vector<DecoderKernels::Run>& runs) {
    for (const DecoderKernels::Run& run : runs)
      for (const std::shared_ptr<const MatmulPlan>& plan : run.loaded.products) {
        const auto part = std::ranges::find(kProducts, plan->name(), [](const auto& product) { return product.first; });
        if (part == std::end(kProducts) || found.contains(plan->name())) continue;
        Number& number = found[plan->name()] = {plan->name(), plan->name() + ".product", {}};
        for (const MatmulConfig& config :
             MatmulPlanner(*place.device, *place.kernels).proposals(*plan) | std::views::take(kProposalsToTry))
          number.candidates.emplace_back(to_string(config), [=, of = part->second](StepTuning& tuning) {
            (tuning.*of).product = {.config = config};
          });
      }
  };
  add(kernels.first);
  add(kernels.last);
  std::ranges::for_each(kernels.kinds, add);
  std::vector<Number> numbers;
  for (const auto& [part, of] : kProducts)
    if (const auto number = found.find(part); number != found.end()) numbers.push_back(std::move(number->second));
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

// Steps that decode, once filled, or a prompt's, ready to be launched again and again.
class Candidate {
 public:
  Candidate(const ModelPlace& place, const DirectStepsOptions& options, bool of_prompt) {
    if (of_prompt)
      prompt_ = std::make_unique<PromptStep>(place, options.slots);
    else
      steps_ = std::make_unique<DirectSteps>(place, options);
    built_ = to_text(plan());
    for (const PlanNode& node : plan().nodes)
      if (node.kernel != nullptr) built_ += to_string(node.kernel->request) + "\n";
  }
  void fill(int64_t context) {
    if (steps_)
      fill_bucket(*steps_, context);
    else
      run_ = std::make_unique<PlanRun>(plan(), RunMode::explicit_, stream());
  }
  void launch() { steps_ ? steps_->run().launch() : run_->launch(); }
  const Stream& stream() { return steps_ ? steps_->device().compute() : prompt_->device.compute(); }
  const Plan& plan() const { return steps_ ? steps_->plan() : prompt_->plan; }
  const std::string& built() const { return built_; }  // the plan's text, and the constants that it leaves out

 private:
  std::unique_ptr<DirectSteps> steps_;  // or
  std::unique_ptr<PromptStep> prompt_;
  std::unique_ptr<PlanRun> run_;  // the prompt's
  std::string built_;
};

class Tuner {
 public:
  Tuner(const ModelPlace& place, const TunerOptions& options, const std::function<void(const TunerTrial&)>& told)
      : place_(place), options_(options), told_(told) {}

  // Tunes steps of `rows` rows.
  StepTuning tune(int64_t rows, bool of_prompt, std::vector<Number> numbers) {
    rows_ = rows;
    of_prompt_ = of_prompt;
    best_ = of_prompt && options_.in_use ? options_.in_use->of(rows) : StepTuning{};
    if (of_prompt) numbers.clear();
    for (Number& number : proposed_numbers()) {
      forget_unless_proposed(number);
      if (options_.parts.empty() || std::ranges::count(options_.parts, number.part))
        numbers.push_back(std::move(number));
    }
    current_ = build(best_);
    current_->fill(options_.context);
    compared_.clear();
    refused_.clear();
    hopeless_.clear();
    for (int round = 0; round < (of_prompt ? 1 : options_.most_rounds); ++round) {
      const StepTuning before = best_;
      for (const Number& number : numbers) try_values(number);
      if (best_ == before) break;
    }
    current_.reset();
    return best_;
  }

 private:
  DirectStepsOptions steps_options(const StepTuning& tuning) const {
    auto step = std::make_shared<const Tuning>(Tuning{.key = {}, .steps = {{rows_, tuning}}, .products = {}});
    if (of_prompt_)
      return {.slots = {.buckets = BucketSet({static_cast<int>(rows_)}),
                        .max_context = rows_,
                        .pages = pages_for(rows_),
                        .tuning = std::move(step)}};
    return {.bucket = rows_,
            .prefill_rows = filling_rows(options_.context),
            .slots = {.max_context = options_.context, .sequences = rows_, .tuning = std::move(step)}};
  }

  std::unique_ptr<Candidate> build(const StepTuning& tuning) {
    return std::make_unique<Candidate>(place_, steps_options(tuning), of_prompt_);
  }

  StepShape shape(const StepTuning& tuning, int64_t rows) const {
    return shape_of(*place_.model, steps_options(tuning).slots, static_cast<int>(rows), nullptr);
  }

  // None where the library cannot be had: a step of few rows may need none.
  std::vector<Number> proposed_numbers() {
    try {
      return product_numbers(place_, shape_of_products());
    } catch (const Error& error) {
      told_({.rows = rows_, .number = "products", .value = "algorithms", .refused = error.what()});
      return {};
    }
  }

  // An algorithm of another version of the library, which the best step would carry on without ever having run it.
  void forget_unless_proposed(const Number& number) {
    const auto of =
        std::ranges::find(kProducts, number.part, [](const auto& product) { return product.first; })->second;
    const ProductTuning& named = (best_.*of).product;
    const auto is_named = [&](const auto& candidate) {
      StepTuning tuning;
      candidate.second(tuning);
      return (tuning.*of).product.config == named.config;
    };
    if (named.names_algorithm() && std::ranges::none_of(number.candidates, is_named)) (best_.*of).product = {};
  }

  // The step with the library's products for all projections that may be.
  StepShape shape_of_products() const {
    StepTuning tuning = best_;
    if (!of_prompt_) tuning.arithmetic = Arithmetic::products;
    for (const auto& [part, of] : kProducts) (tuning.*of).product = {.config = {.algorithm = 1}};
    return shape(tuning, rows_);
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
        for (const int64_t rows : {rows_, of_prompt_ ? rows_ : filling_rows(options_.context)})
          std::ranges::move(decoder_kernel_requests(*place_.kernels, place_.model->config(), shape(tuning, rows)),
                            std::back_inserter(requests));
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
        candidate->fill(options_.context);
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
    return candidate.built() != current_->built() && compared_.insert(candidate.built()).second;
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
    const Stream& stream = candidate.stream();
    start_.record(stream);
    for (int i = 0; i < options_.launches_per_sample; ++i) candidate.launch();
    end_.record(stream);
    end_.synchronize();
    return 1e3 * static_cast<double>(end_.ms_since(start_)) / options_.launches_per_sample;
  }

  const ModelPlace place_;
  const TunerOptions& options_;
  const std::function<void(const TunerTrial&)>& told_;
  Event start_{*place_.device, "tune.start", true}, end_{*place_.device, "tune.end", true};
  int64_t rows_ = 0;
  bool of_prompt_ = false;
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
  Tuning tuning{.key = tuning_key(device.properties().name, model.config()), .steps = {}, .products = {}};
  Tuner tuner({&device, &kernels, &model}, options, told);
  const auto tune = [&](const std::vector<int64_t>& all, bool of_prompts) {
    for (const int64_t rows : all)
      if (!options.stop || !options.stop()) tuning.steps[rows] = tuner.tune(rows, of_prompts, numbers);
  };
  tune(options.rows, false);
  tune(options.prompts, true);
  return tuning;
}

}  // namespace nodewright
