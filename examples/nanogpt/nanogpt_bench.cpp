#include "examples/nanogpt/nanogpt_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/measured_work.h"
#include "runtime/error.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The place of each mode in sample `round`: every rotation, forwards and backwards.
std::array<size_t, 3> order_of(int round) {
  const auto shift = static_cast<size_t>(round % 3);
  std::array<size_t, 3> order{shift, (shift + 1) % 3, (shift + 2) % 3};
  if (round / 3 % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

std::vector<int32_t> generate(NanogptSequence& sequence, std::span<const int32_t> prompt, int64_t count,
                              const NanogptSampling& sampling, std::vector<double>* step_ms) {
  std::vector<int32_t> tokens{sequence.start(prompt, sampling)};
  while (static_cast<int64_t>(tokens.size()) < count) {
    const Clock::time_point start = Clock::now();
    tokens.push_back(sequence.step().value());
    if (step_ms != nullptr) step_ms->push_back(ms_since(start));
  }
  return tokens;
}

std::optional<std::string> difference(const char* choice, RunMode mode, const std::vector<int32_t>& tokens,
                                      RunMode other_mode, const std::vector<int32_t>& other) {
  const auto [a, b] = std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end());
  if (a == tokens.end() && b == other.end()) return std::nullopt;
  const auto shown = [](auto at, const std::vector<int32_t>& of) {
    return at == of.end() ? std::string("none") : std::to_string(*at);
  };
  return fmt::format("{} token {} is {} {}, {} {}", choice, a - tokens.begin(), to_string(mode), shown(a, tokens),
                     to_string(other_mode), shown(b, other));
}

}  // namespace

// The article's tables.
std::vector<NanogptConfiguration> nanogpt_named_configurations() {
  return {{"smoke_test", 4, 8},
          {"medium_generation", 8, 32},
          {"long_generation", 8, 48},
          {"heavy_prompt", 32, 16},
          {"near_context_limit", 4, 56}};
}
std::vector<int64_t> nanogpt_sweep_lengths() { return {8, 16, 32, 48, 56}; }

double NanogptLine::tokens_per_s(size_t mode) const {
  return static_cast<double>(configuration.generated) / (modes[mode].end_to_end_ms.median * 1e-3);
}
double NanogptLine::step_speedup(size_t mode) const { return modes[0].step_ms.median / modes[mode].step_ms.median; }
double NanogptLine::end_to_end_speedup(size_t mode) const {
  return modes[0].end_to_end_ms.median / modes[mode].end_to_end_ms.median;
}

std::optional<std::string> token_difference(const NanogptLine& line) {
  for (size_t mode = 1; mode < kNanogptModes.size(); ++mode) {
    const NanogptFigures &eager = line.modes[0], &other = line.modes[mode];
    if (auto found = difference("greedy", kNanogptModes[0], eager.greedy, kNanogptModes[mode], other.greedy))
      return found;
    if (auto found = difference("sampled", kNanogptModes[0], eager.sampled, kNanogptModes[mode], other.sampled))
      return found;
  }
  if (!line.changed.empty()) return line.changed + " chose other tokens in another sample";
  return std::nullopt;
}

NanogptBench::NanogptBench(Device& device, const Stream& stream, KernelCache& kernels, const NanogptWeights& weights,
                           const NanogptBenchOptions& options)
    : device_(device),
      stream_(stream),
      weights_(weights),
      options_(options),
      step_kernels_(nanogpt_kernels(kernels, weights.config(), 1)),
      build_state_(device, weights.config()),
      sequences_{NanogptSequence(device, stream, kernels, weights, {kNanogptModes[0], options.policy}),
                 NanogptSequence(device, stream, kernels, weights, {kNanogptModes[1], options.policy}),
                 NanogptSequence(device, stream, kernels, weights, {kNanogptModes[2], options.policy})} {}

void NanogptBench::check(const NanogptConfiguration& c) const {
  const int64_t most = weights_.config().context - c.prompt + 1;
  if (c.generated >= 2 && c.generated <= most) return;
  throw Error({.doing = "generate",
               .object = fmt::format("{} tokens after a prompt of {}", c.generated, c.prompt),
               .detail = fmt::format("a context of {} has room for 2 to {}", weights_.config().context, most),
               .fault = Fault::usage});
}

double NanogptBench::build_ms(RunMode mode) const {
  const Clock::time_point start = Clock::now();
  const PlanRun run(nanogpt_step_plan(device_, weights_, step_kernels_, build_state_, options_.policy), mode, stream_);
  return ms_since(start);
}

NanogptLine NanogptBench::measure(const NanogptConfiguration& configuration) {
  check(configuration);
  const std::vector<int32_t> prompt = some_tokens(configuration.prompt, weights_.config().vocab);
  const NanogptSampling sampling{options_.temperature, options_.seed};
  const int64_t count = configuration.generated;
  const Event start(device_, "bench.start", true), end(device_, "bench.end", true);

  NanogptLine line{.configuration = configuration, .modes = {}, .changed = {}};
  struct Samples {
    std::vector<double> step, end_to_end, device_step, build;
  };
  std::array<Samples, 3> samples;
  for (size_t mode = 0; mode < sequences_.size(); ++mode) {
    sequences_[mode].prepare(configuration.prompt);
    line.modes[mode].greedy = generate(sequences_[mode], prompt, count, {}, nullptr);
    line.modes[mode].sampled = generate(sequences_[mode], prompt, count, sampling, nullptr);
  }
  for (int round = -2; round < options_.samples; ++round) {  // two rounds warm up
    for (const size_t mode : order_of(round + 2)) {
      Samples unused, &into = round < 0 ? unused : samples[mode];
      NanogptSequence& sequence = sequences_[mode];
      into.build.push_back(build_ms(kNanogptModes[mode]));

      const Clock::time_point begun = Clock::now();
      const std::vector<int32_t> tokens = generate(sequence, prompt, count, sampling, &into.step);
      into.end_to_end.push_back(ms_since(begun));
      if (tokens != line.modes[mode].sampled) line.changed = to_string(kNanogptModes[mode]);

      sequence.start(prompt, sampling);
      start.record(stream_);
      sequence.submit(count - 1);
      end.record(stream_);
      end.synchronize();
      into.device_step.push_back(static_cast<double>(end.ms_since(start)) / static_cast<double>(count - 1));
    }
  }
  for (size_t mode = 0; mode < samples.size(); ++mode) {
    line.modes[mode].step_ms = spread_of(samples[mode].step);
    line.modes[mode].end_to_end_ms = spread_of(samples[mode].end_to_end);
    line.modes[mode].device_step_ms = spread_of(samples[mode].device_step);
    line.modes[mode].build_ms = spread_of(samples[mode].build);
  }
  return line;
}

}  // namespace nodewright
