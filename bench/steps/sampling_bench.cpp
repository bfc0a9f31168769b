#include "bench/steps/sampling_bench.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "bench/alternation.h"
#include "bench/measured_work.h"
#include "runtime/error.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

// The steps of one bucket, whose rows attend to `context` keys each time.
class SampledSteps {
 public:
  SampledSteps(Device& device, KernelCache& kernels, const DecoderModel& model, const SamplingBenchOptions& options,
               int64_t batch, int64_t context, int64_t max_context, RunMode mode)
      : batch_(static_cast<int>(batch)),
        context_(context),
        vocab_(model.config().vocab),
        launches_(options.launches_per_sample),
        slots_(device, kernels, model,
               {.buckets = BucketSet({static_cast<int>(batch)}),
                .max_context = max_context,
                .sequences = batch,
                .pages = batch * pages_for(max_context),
                .numerics = options.numerics,
                .choices = std::ranges::any_of(options.settings, &ChoiceOptions::shapes, &RowSampling::choice),
                .tuning = options.tuning,
                .mode = mode,
                .policy = options.policy,
                .products_from = options.products_from}),
        start_(device, "bench.start", true),
        end_(device, "bench.end", true) {
    slots_.fill_pages(std::byte{0});
    std::vector<int32_t> pages(static_cast<size_t>(pages_for(context)));
    for (int32_t row = 0; row < batch_; ++row) {
      std::iota(pages.begin(), pages.end(), row * static_cast<int32_t>(pages.size()));
      slots_.write_table(row, pages);
    }
  }

  // Microseconds of device time a step, of one sample. What the host writes is written before: every launch repeats it.
  double sample_us(const RowSampling& rows) {
    for (int slot = 0; slot < kSlots; ++slot) write_rows(slot, rows);
    for (int slot = 0; slot < kSlots; ++slot) step(slot, rows, true);
    for (int slot = 0; slot < kSlots; ++slot) slots_.wait(slot);
    start_.record(slots_.stream());
    for (int i = 0; i < launches_; ++i) step(i % kSlots, rows, false);
    end_.record(slots_.stream());
    end_.synchronize();
    for (int slot = 0; slot < kSlots; ++slot) read_tokens(slot, rows);
    return 1e3 * static_cast<double>(end_.ms_since(start_)) / launches_;
  }

  // Those of the last sample.
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  void write_rows(int slot, const RowSampling& rows) {
    const std::vector<int32_t> tokens = some_tokens(batch_, vocab_);
    for (int row = 0; row < batch_; ++row) {
      Sampling sampling = rows.sampling;
      sampling.seed = sampling.seed.value_or(0) + static_cast<uint64_t>(row);
      write_row(slots_.inputs(slot, batch_), row,
                {.token = tokens[static_cast<size_t>(row)],
                 .position = context_ - 1,
                 .sequence = row,
                 .output = 0,
                 .sampling = sampling});
      if (slot == 0 && rows.choice.penalises())
        slots_.set_counts(row, token_counts(some_tokens(context_, vocab_), {}, vocab_));
    }
  }

  void step(int slot, const RowSampling& rows, bool writes) {
    const bool again = rows.choice.shapes();
    slots_.launch(
        {.slot = slot, .bucket = batch_, .live = batch_, .sampled = batch_, .copies = {}, .chooses_again = again});
    if (again && writes) write_choices(slot, rows);
    slots_.sample(slot, again ? batch_ : 0);
  }

  void write_choices(int slot, const RowSampling& rows) {
    const ChoiceInputs& in = slots_.choices(slot);
    for (int row = 0; row < batch_; ++row) {
      Sampling sampling = rows.sampling;
      sampling.seed = sampling.seed.value_or(0) + static_cast<uint64_t>(row);
      if (rows.choice.allow) rows.choice.allow({}, cleared_mask(in, row));
      write_choice(in, row,
                   {.step_row = row,
                    .sequence = row,
                    .output = 0,
                    .sampling = sampling,
                    .options = rows.choice,
                    .stop_ids = {}});
    }
  }

  void read_tokens(int slot, const RowSampling& rows) {
    std::span<const int32_t> tokens = slots_.wait(slot);
    if (rows.choice.shapes()) tokens = {slots_.chosen(slot).tokens.data, static_cast<size_t>(batch_)};
    tokens_.assign(tokens.begin(), tokens.end());
  }

  int batch_;
  int64_t context_, vocab_;
  int launches_;
  StepSlots slots_;
  Event start_, end_;
  std::vector<int32_t> tokens_;
};

void check_settings(const std::vector<RowSampling>& settings, int64_t vocab) {
  for (const RowSampling& rows : settings)
    if (const std::string reason = why_not(rows.choice, {}, vocab); !reason.empty())
      throw Error({.doing = "choose by", .object = rows.name, .detail = reason, .fault = Fault::usage});
}

}  // namespace

std::vector<SamplingBenchLine> bench_sampling(Device& device, KernelCache& kernels, const DecoderModel& model,
                                              const SamplingBenchOptions& options,
                                              const std::function<void(const SamplingBenchLine&)>& told) {
  check_settings(options.settings, model.config().vocab);
  std::vector<RowSampling> settings{RowSampling{}};
  for (const RowSampling& rows : options.settings)
    if (rows.name != settings.front().name) settings.push_back(rows);
  const int64_t max_context = std::max(options.max_context, std::ranges::max(options.contexts));
  SteadyCore core;
  std::vector<SamplingBenchLine> lines;
  const auto measure = [&](int64_t batch, int64_t context, RunMode mode) {
    SampledSteps steps(device, kernels, model, options, batch, context, max_context, mode);
    std::vector<std::vector<double>> us(settings.size());
    std::vector<std::vector<int32_t>> tokens(settings.size());
    std::vector<std::function<void(bool)>> variants;
    for (size_t i = 0; i < settings.size(); ++i)
      variants.emplace_back([&, i](bool counted) {
        const double sample = steps.sample_us(settings[i]);
        tokens[i] = steps.tokens();
        if (counted) us[i].push_back(sample);
      });
    alternate(variants, 2, options.samples, core);
    for (size_t i = 0; i < settings.size(); ++i) {
      SamplingBenchLine line{.batch = batch, .context = context, .mode = mode, .sampling = settings[i].name};
      line.second_choice = settings[i].choice.shapes();
      line.step_us = spread_of(us[i]);
      std::vector<double> over;
      for (size_t sample = 0; sample < us[i].size(); ++sample) over.push_back(us[i][sample] - us[0][sample]);
      line.over_greedy_us = spread_of(over);
      for (size_t row = 0; row < tokens[i].size(); ++row) line.unlike_greedy += tokens[i][row] != tokens[0][row];
      told(lines.emplace_back(std::move(line)));
    }
  };
  for (const int64_t batch : options.batches)
    for (const int64_t context : options.contexts)
      for (const RunMode mode : options.modes) measure(batch, context, mode);
  return lines;
}

}  // namespace nodewright
