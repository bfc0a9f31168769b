#include "bench/step_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/decode_bench.h"
#include "graph/graph_dump.h"
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
                           {1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64}));
  numbers.push_back(number("attend", "attend.warps", &StepTuning::attend, &AttendTuning::warps, {4, 8, 16}));
  numbers.push_back(number("attend", "attend.unroll", &StepTuning::attend, &AttendTuning::unroll, {1, 2, 4}));
  numbers.push_back(number("attend", "attend.ring", &StepTuning::attend, &AttendTuning::ring, {2, 3, 4, 6, 8, 10, 12}));
  for (const auto& [part, of] : {std::pair{"gate_up", &StepTuning::gate_up},
                                 {"down", &StepTuning::down},
                                 {"head", &StepTuning::head},
                                 {"qkv", &StepTuning::qkv},
                                 {"out", &StepTuning::out}}) {
    const std::string name = part;
    const auto matvec = &ProjectionTuning::matvec;
    const auto tile = &ProjectionTuning::tile;
    numbers.push_back(
        number(name, name + ".matvec.threads", of, matvec, &MatvecTuning::threads, {64, 96, 128, 160, 192, 224, 256}));
    numbers.push_back(number(name, name + ".matvec.batch", of, matvec, &MatvecTuning::batch, {2, 4, 8, 16}));
    numbers.push_back(
        number(name, name + ".matvec.blocks_per_sm", of, matvec, &MatvecTuning::blocks_per_sm, {1, 2, 3, 4}));
    numbers.push_back(number(name, name + ".tile.ring", of, tile, &TileTuning::ring, {2, 3, 4, 5, 6, 7, 8}));
    numbers.push_back(number(name, name + ".tile.warps", of, tile, &TileTuning::warps, {4, 5, 6, 7, 8}));
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
                   .advice = "arithmetic, attend, qkv, out, gate_up, down or head",
                   .fault = Fault::usage});
  std::erase_if(all, [&](const Number& number) { return !std::ranges::count(parts, number.part); });
  return all;
}

// A decoder whose every row attends to the same number of keys, ready to be launched again and again.
struct Candidate {
  Candidate(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model, int64_t rows,
            int64_t context, const StepTuning& tuning)
      : decoder(device, stream, kernels, model,
                {.bucket = rows,
                 .max_context = context,
                 .sequences = rows,
                 .tuning = std::make_shared<const Tuning>(Tuning{.key = {}, .steps = {{rows, tuning}}})}) {
    decoder.step(fill_bucket(decoder, context, model.config().vocab));
    plan = to_text(decoder.step_plan());
  }

  Decoder decoder;
  std::string plan;
};

class Tuner {
 public:
  Tuner(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
        const TunerOptions& options, const std::function<void(const TunerTrial&)>& told)
      : device_(device), stream_(stream), kernels_(kernels), model_(model), options_(options), told_(told) {}

  // Of steps of `rows` rows.
  StepTuning tune(int64_t rows, const std::vector<Number>& numbers) {
    rows_ = rows;
    best_ = {};
    current_ = build({});
    for (int round = 0; round < options_.most_rounds; ++round) {
      const StepTuning before = best_;
      for (const Number& number : numbers) try_values(number);
      if (best_ == before) break;
    }
    current_.reset();
    return best_;
  }

 private:
  std::unique_ptr<Candidate> build(const StepTuning& tuning) {
    return std::make_unique<Candidate>(device_, stream_, kernels_, model_, rows_, options_.context, tuning);
  }

  void try_values(const Number& number) {
    for (const auto& [value, set] : number.candidates) {
      StepTuning tuning = best_;
      set(tuning);
      if (tuning == best_) continue;
      TunerTrial trial{.rows = rows_, .number = number.name, .value = value};
      std::unique_ptr<Candidate> candidate;
      try {
        candidate = build(tuning);
      } catch (const Error& error) {  // its kernels spill registers, or need more than a block may have
        trial.refused = error.what();
        told_(trial);
        continue;
      }
      if (candidate->plan == current_->plan) continue;
      compare(*candidate, trial);
      told_(trial);
      if (!trial.taken) continue;
      best_ = tuning;
      current_ = std::move(candidate);
    }
  }

  void compare(Candidate& candidate, TunerTrial& trial) {
    std::vector<double> ours, theirs;
    for (int i = -1; i < options_.samples; ++i) {  // one round warms up
      const double before = step_us(*current_), now = step_us(candidate);
      if (i < 0) continue;
      theirs.push_back(before);
      ours.push_back(now);
    }
    trial.us = spread_of(ours).median;
    trial.best_us = spread_of(theirs).median;
    trial.taken = trial.us < (1 - options_.least_gain) * trial.best_us;
  }

  double step_us(Candidate& candidate) {
    start_.record(stream_);
    for (int i = 0; i < options_.launches_per_sample; ++i) candidate.decoder.relaunch();
    end_.record(stream_);
    end_.synchronize();
    return 1e3 * static_cast<double>(end_.ms_since(start_)) / options_.launches_per_sample;
  }

  Device& device_;
  const Stream& stream_;
  KernelCache& kernels_;
  const DecoderModel& model_;
  const TunerOptions& options_;
  const std::function<void(const TunerTrial&)>& told_;
  Event start_{device_, "tune.start", true}, end_{device_, "tune.end", true};
  int64_t rows_ = 0;
  StepTuning best_;
  std::unique_ptr<Candidate> current_;
};

}  // namespace

Tuning tune_steps(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
                  const TunerOptions& options, const std::function<void(const TunerTrial&)>& told) {
  const std::vector<Number> numbers = numbers_of(options.parts);
  Tuning tuning{.key = {.device = device.properties().name, .model = model_sizes(model.config())}, .steps = {}};
  Tuner tuner(device, stream, kernels, model, options, told);
  for (const int64_t rows : options.rows) tuning.steps[rows] = tuner.tune(rows, numbers);
  return tuning;
}

}  // namespace nodewright
