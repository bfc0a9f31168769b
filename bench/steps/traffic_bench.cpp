#include "bench/steps/traffic_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "engine/device/step_clock.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using TrafficClock = std::chrono::steady_clock;
using TimePoint = TrafficClock::time_point;

double ms_between(TimePoint from, TimePoint to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

RequestId submit_or_throw(Engine& engine, RequestSpec spec, const RowSampling& sampling, uint64_t index) {
  Sampling own = sampling.sampling;
  own.seed = own.seed.value_or(0) + index;
  const auto [id, reason] = engine.submit(std::move(spec), own, sampling.choice);
  if (!id) throw Error({.doing = "serve a request of", .object = "bench serve", .detail = reason});
  return *id;
}

// Ended requests; throws where one failed.
std::vector<Resolution> ended(Engine& engine) {
  std::vector<Resolution> resolutions = engine.take_resolutions();
  for (const Resolution& one : resolutions)
    if (one.reason == EndReason::failed)
      throw Error({.doing = "serve a request of", .object = "bench serve", .detail = one.message});
  return resolutions;
}

// When a request came, and its tokens.
struct Served {
  TimePoint arrival;
  std::vector<TimePoint> tokens;
};

struct RoundOfTraffic {
  std::vector<Served> served;
  double seconds = 0;
  int64_t steps = 0;
  std::set<int64_t> idle_before;  // steps, from 0, before which there was no work
};

// Requests that have not come yet are looked at between two steps: who waits for nothing else sleeps until the next.
class TrafficRound {
 public:
  TrafficRound(Engine& engine, const TrafficOptions& options, uint64_t round)
      : engine_(engine), options_(options), round_(round) {
    for (size_t i = 0; i < options.requests.size(); ++i)
      prompts_.push_back(random_prompt(options.requests[i].prompt, options.vocab, options.seed + index_of_all(i)));
  }

  RoundOfTraffic run() {
    start_ = TrafficClock::now();
    const int64_t steps_before = engine_.stats().steps();
    result_.served.resize(options_.requests.size());
    while (true) {
      submit_arrived();
      if (!engine_.advance()) {
        if (open_ > 0)
          throw Error({.doing = "serve", .object = "bench serve", .detail = engine_.pipeline().describe()});
        if (next_ == options_.requests.size()) break;
        result_.idle_before.insert(engine_.stats().steps() - steps_before);
        wait_for_arrival();
        continue;
      }
      const std::vector<CommittedToken> tokens = engine_.take_tokens();
      const TimePoint now = TrafficClock::now();
      for (const CommittedToken& token : tokens) result_.served[index_of_.at(token.request)].tokens.push_back(now);
      if (!tokens.empty()) last_token_ = now;
      open_ -= static_cast<int64_t>(ended(engine_).size());
    }
    result_.seconds = 1e-3 * ms_between(start_, last_token_);
    result_.steps = engine_.stats().steps() - steps_before;
    return std::move(result_);
  }

 private:
  TimePoint due(size_t index) const {
    return start_ + std::chrono::duration_cast<TrafficClock::duration>(
                        std::chrono::duration<double>(options_.requests[index].arrival_s));
  }

  void submit_arrived() {
    const auto may_come = [&] {
      return options_.concurrency > 0 ? open_ < options_.concurrency : due(next_) <= TrafficClock::now();
    };
    while (next_ < options_.requests.size() && may_come()) {
      const PlannedRequest& planned = options_.requests[next_];
      result_.served[next_].arrival = options_.concurrency > 0 ? TrafficClock::now() : due(next_);
      const RequestId id =
          submit_or_throw(engine_, {.prompt = std::move(prompts_[next_]), .max_tokens = planned.output},
                          options_.sampling, index_of_all(next_));
      index_of_[id] = next_++;
      ++open_;
    }
  }

  // Among the requests of all rounds.
  uint64_t index_of_all(size_t index) const { return round_ * options_.requests.size() + index; }

  void wait_for_arrival() const {
    // A sleeper wakes up late: the last of it is spent looking.
    constexpr auto kLate = std::chrono::milliseconds(1);
    std::this_thread::sleep_until(due(next_) - kLate);
    while (TrafficClock::now() < due(next_)) continue;
  }

  Engine& engine_;
  const TrafficOptions& options_;
  uint64_t round_;
  std::vector<std::vector<int32_t>> prompts_;  // made before: drawing tokens takes longer than a step may wait
  RoundOfTraffic result_;
  TimePoint start_, last_token_;
  size_t next_ = 0;
  int64_t open_ = 0;
  std::map<RequestId, size_t> index_of_;
};

// The idle times of one more round, whose steps carry events.
Tail idle_of(Device& device, Engine& engine, const TrafficOptions& options, int64_t steps) {
  constexpr int64_t kMostTimed = 50000;
  StepClock clock(device, static_cast<size_t>(std::min(steps + steps / 4 + 16, kMostTimed)));
  engine.slots().time_with(&clock);
  const RoundOfTraffic round = TrafficRound(engine, options, static_cast<uint64_t>(options.rounds)).run();
  engine.slots().time_with(nullptr);
  const std::vector<double> gaps = clock.gap_us();
  std::vector<double> idle;
  for (size_t i = 0; i < gaps.size(); ++i)  // gap i lies before step i + 1
    if (!round.idle_before.contains(static_cast<int64_t>(i) + 1)) idle.push_back(gaps[i]);
  return tail_of(std::move(idle));
}

// Decoders, and the prompt that arrives beside them.
class ArrivingPrompt {
 public:
  ArrivingPrompt(Engine& engine, std::vector<StepRecord>& steps, const ArrivingPromptOptions& options)
      : engine_(engine), engine_steps_(steps), options_(options) {}

  // Tokens a second of the prompt until its first token, and what it did to `decoders`.
  double run(int decoders) {
    std::vector<int32_t> prompt = random_prompt(options_.prompt, options_.vocab, next_key());
    gaps_before.clear(), gaps_during.clear();
    last_of_.clear();
    for (int i = 0; i < decoders; ++i) {
      const RequestId id = submit_or_throw(
          engine_, {.prompt = random_prompt(kDecoderPrompt, options_.vocab, next_key()), .max_tokens = most_outputs()},
          options_.sampling, static_cast<uint64_t>(i));
      last_of_[id] = std::nullopt;
    }
    constexpr int kTokensBefore = 16;
    for (size_t tokens = 0; decoders > 0 && (tokens < kTokensBefore * last_of_.size() || !all_decode());)
      tokens += step(gaps_before);
    first_token_.reset();
    engine_steps_.clear();
    const TimePoint arrival = TrafficClock::now();
    submit_or_throw(engine_, {.prompt = std::move(prompt), .max_tokens = 1}, options_.sampling,
                    static_cast<uint64_t>(decoders));
    while (!first_token_) step(gaps_during);
    add_full_steps();
    const double seconds = 1e-3 * ms_between(arrival, *first_token_);
    const size_t at_least = gaps_during.size() + 2 * static_cast<size_t>(decoders);  // what its end held up
    while (decoders > 0 && gaps_during.size() < at_least) step(gaps_during);
    for (const auto& [id, last] : last_of_) engine_.cancel(id);
    while (engine_.advance()) continue;
    engine_.take_tokens();
    ended(engine_);
    return static_cast<double>(options_.prompt) / seconds;
  }

  std::vector<double> gaps_before, gaps_during;  // ms between two tokens of a decoder, in the last run
  std::vector<double> full_step_ms;              // of the steps that took most of the prompt, in the last run

 private:
  // Outlasts the prompt, if a chunk of it goes through with each token.
  int64_t most_outputs() const { return options_.prompt + kMostOverPrompt; }
  uint64_t next_key() { return options_.seed + keys_++; }
  bool all_decode() const {
    return std::ranges::all_of(last_of_, [](const auto& one) { return one.second.has_value(); });
  }

  void add_full_steps() {
    full_step_ms.clear();
    const auto most = std::ranges::max_element(engine_steps_, {}, &StepRecord::prompt_tokens);
    for (const StepRecord& one : engine_steps_)
      if (one.prompt_tokens > 0 && one.bucket == most->bucket) full_step_ms.push_back(1e-3 * one.us);
  }

  size_t step(std::vector<double>& gaps) {
    if (!engine_.advance())
      throw Error({.doing = "keep decoders busy in",
                   .object = "bench serve",
                   .detail = "they ended before the prompt",
                   .advice = "a larger --max-context"});
    const std::vector<CommittedToken> tokens = engine_.take_tokens();
    const TimePoint now = TrafficClock::now();
    size_t of_decoders = 0;
    for (const CommittedToken& token : tokens) {
      const auto decoder = last_of_.find(token.request);
      if (decoder == last_of_.end()) {
        first_token_ = now;
        continue;
      }
      if (decoder->second) gaps.push_back(ms_between(*decoder->second, now));
      decoder->second = now;
      ++of_decoders;
    }
    return of_decoders;
  }

  Engine& engine_;
  std::vector<StepRecord>& engine_steps_;
  const ArrivingPromptOptions& options_;
  uint64_t keys_ = 0;
  std::map<RequestId, std::optional<TimePoint>> last_of_;  // of the decoders
  std::optional<TimePoint> first_token_;                   // of the prompt
};

}  // namespace

TrafficFigures measure_traffic(Device& device, Engine& engine, const TrafficOptions& options) {
  TrafficFigures figures;
  std::vector<double> first, between, whole;
  int64_t steps_of_round = 0;
  TrafficOptions warm_up = options;
  warm_up.requests.resize(std::min<size_t>(options.requests.size(), 4));
  warm_up.concurrency = 4;
  TrafficRound(engine, warm_up, static_cast<uint64_t>(options.rounds) + 1).run();
  if (options.counts) options.counts(true);
  for (int round = 0; round < options.rounds; ++round) {
    const RoundOfTraffic traffic = TrafficRound(engine, options, static_cast<uint64_t>(round)).run();
    figures.seconds += traffic.seconds;
    figures.steps += traffic.steps;
    steps_of_round = std::max(steps_of_round, traffic.steps);
    for (const Served& served : traffic.served) {
      figures.output_tokens += static_cast<int64_t>(served.tokens.size());
      first.push_back(ms_between(served.arrival, served.tokens.front()));
      whole.push_back(ms_between(served.arrival, served.tokens.back()));
      for (size_t i = 1; i < served.tokens.size(); ++i)
        between.push_back(ms_between(served.tokens[i - 1], served.tokens[i]));
    }
    for (const PlannedRequest& planned : options.requests) figures.prompt_tokens += planned.prompt;
    figures.requests += static_cast<int64_t>(options.requests.size());
  }
  if (options.counts) options.counts(false);
  figures.first_token_ms = tail_of(std::move(first));
  figures.between_tokens_ms = tail_of(std::move(between));
  figures.request_ms = tail_of(std::move(whole));
  figures.idle_us = idle_of(device, engine, options, steps_of_round);
  return figures;
}

ArrivingPromptFigures measure_arriving_prompt(Engine& engine, std::vector<StepRecord>& steps,
                                              const ArrivingPromptOptions& options) {
  ArrivingPrompt arriving(engine, steps, options);
  std::vector<double> before, during, full, worst, alone, beside;
  for (int round = -1; round < options.rounds; ++round) {  // one warms up
    if (round == 0 && options.counts) options.counts(true);
    const double rate_alone = arriving.run(0), rate_beside = arriving.run(options.decoders);
    if (round < 0) continue;
    alone.push_back(rate_alone);
    beside.push_back(rate_beside);
    before.insert(before.end(), arriving.gaps_before.begin(), arriving.gaps_before.end());
    full.insert(full.end(), arriving.full_step_ms.begin(), arriving.full_step_ms.end());
    during.insert(during.end(), arriving.gaps_during.begin(), arriving.gaps_during.end());
    worst.push_back(std::ranges::max(arriving.gaps_during));
  }
  if (options.counts) options.counts(false);
  return {.prompt = options.prompt,
          .before_ms = tail_of(std::move(before)),
          .during_ms = tail_of(std::move(during)),
          .full_step_ms = tail_of(std::move(full)),
          .worst_gap_ms = spread_of(std::move(worst)),
          .alone_tokens_per_s = spread_of(std::move(alone)),
          .beside_tokens_per_s = spread_of(std::move(beside))};
}

}  // namespace nodewright
