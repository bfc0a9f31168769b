#include "cli/run/serving.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "cli/interruption.h"
#include "cli/output/say.h"
#include "engine/engine_report.h"

namespace nodewright::cli {
namespace {

// With nothing to do: how long until it looks whether it was interrupted.
constexpr std::chrono::milliseconds kLook{50};

double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

Serving::Serving(Engine& engine, LineSource& source, std::vector<RequestLine> first, ResultLines& results,
                 const ServingOptions& options)
    : engine_(engine),
      source_(source),
      results_(results),
      random_(options.seed),
      keeps_times_(options.times),
      start_(Clock::now()),
      last_arrival_(start_),
      progress_("serving requests") {
  if (options.rate) gap_.emplace(*options.rate);
  take_lines(std::move(first));
}

void Serving::run() {
  while (true) {
    if (!cancelled_ && (interrupted() || results_.is_closed())) cancel_all();
    if (waiting_.size() + open_.size() < kMostLinesAhead) {
      const bool ended = source_.ended();  // before the take: what came last is in it
      take_lines(source_.take());
      if (ended && waiting_.empty() && open_.empty()) break;
    }
    if (engine_.pipeline().mode() == PipelineMode::failed) source_.stop();  // it would refuse all that comes
    submit_due();
    const bool advanced = engine_.advance();
    take_tokens();
    take_ends();
    if (advanced || (waiting_.empty() && open_.empty() && source_.ended())) continue;
    const auto look = Clock::now() + kLook;
    source_.wait(waiting_.empty() ? look : std::min(look, waiting_.front().second));
  }
  while (engine_.advance()) continue;
  seconds_ = ms_between(start_, Clock::now()) / 1e3;
  progress_.wipe();
}

void Serving::take_lines(std::vector<RequestLine> lines) {
  const auto now = Clock::now();
  for (RequestLine& line : lines) {
    outputs_ += std::max<int64_t>(std::ssize(line.outputs), 1);
    auto due = now;
    if (gap_)
      due = last_arrival_ +=
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>((*gap_)(random_)));
    waiting_.emplace_back(std::move(line), due);
  }
}

void Serving::submit_due() {
  while (!waiting_.empty() && (cancelled_ || waiting_.front().second <= Clock::now())) {
    auto [line, due] = std::move(waiting_.front());
    waiting_.pop_front();
    submit(std::move(line), due);
  }
}

void Serving::submit(RequestLine line, Clock::time_point due) {
  const bool no_place = line.spec.hidden != HiddenStates::none && !results_.takes_hidden();
  if (no_place && line.refused.empty())
    line.refused = fmt::format("hidden is \"{}\", and no --hidden-dir says where the hidden states are to go",
                               name_of(line.spec.hidden));
  if (cancelled_) {
    results_.cancel(line);
  } else if (!line.refused.empty()) {
    results_.refuse(output_of(line, 0), line.refused);
  } else if (line.batch) {
    submit_batch(line, due);
  } else {
    for (size_t k = 0; k < line.outputs.size(); ++k) {
      auto output = std::make_unique<LineOutput>(output_of(line, k));
      output->due = due;
      const auto [id, reason] =
          engine_.submit(line.spec, line.outputs[k].sampling, std::move(line.outputs[k].choice.options));
      if (id && line.spec.like == 0) line.spec.like = *id;  // the others share its prompt
      if (id)
        open_[*id] = std::move(output);
      else
        results_.refuse(*output, reason);
    }
  }
  show_progress();
}

void Serving::submit_batch(const RequestLine& line, Clock::time_point due) {
  BatchCall& batch = *line.batch;
  if (batch.status != 0) return results_.answer(batch, line.number, batch.status, batch.body);
  RequestId first = 0;
  for (Submission& submission : batch.submissions) {
    AskedRequest& asked = submission.asked;
    for (size_t k = 0; k < asked.outputs.size(); ++k) {
      auto output = std::make_unique<LineOutput>(output_of(line, 0));
      output->batch_index = submission.first_index + static_cast<int>(k);
      output->choice = asked.outputs[k].choice;
      output->due = due;
      asked.spec.call = first;
      const auto [id, reason] =
          engine_.submit(asked.spec, asked.outputs[k].sampling, std::move(asked.outputs[k].choice.options));
      if (!id) {
        const ApiError error = bad_request(reason);
        results_.answer(batch, line.number, error.status(), error_body(error));
        return cancel_batch(batch);
      }
      if (asked.spec.like == 0) asked.spec.like = *id;  // the others share its prompt
      if (first == 0) first = *id;
      open_[*id] = std::move(output);
    }
  }
  batch.submissions.clear();
}

// All at once: a batch line has one answer, at its end.
void Serving::end_of_batch(LineOutput& output, const Resolution& end) {
  BatchCall& batch = *output.batch;
  if (batch.is_answered) return;
  OutputUpdate update{.index = output.batch_index, .tokens = end.outputs};
  if (output.choice.stops) {
    output.choice.stops->finish();
    update.text = output.choice.stops->text();
    if (end.reason == EndReason::stop_string) update.stop_string = output.choice.stops->matched();
  }
  update.logprobs = std::move(output.logprobs);
  update.prompt_logprobs = std::move(output.prompt_logprobs);
  update.end = end;
  batch.call->update(update);
  if (!batch.call->is_done()) return;
  const std::string body = batch.call->finish();
  results_.answer(batch, output.line, batch.call->status(), body);
  cancel_batch(batch);
}

void Serving::cancel_batch(const BatchCall& batch) {
  for (const auto& [id, output] : open_)
    if (output->batch.get() == &batch) engine_.cancel(id);
}

void Serving::take_tokens() {
  const std::vector<CommittedToken> tokens = engine_.take_tokens();
  const auto now = Clock::now();
  std::map<LineOutput*, std::vector<int32_t>> streamed;
  for (const CommittedToken& token : tokens) {
    LineOutput& output = *open_.at(token.request);
    const bool first = output.last_token == Clock::time_point{};
    if (keeps_times_) (first ? first_ms_ : next_ms_).push_back(ms_between(first ? output.due : output.last_token, now));
    output.last_token = now;
    if (output.stream && token.end != EndReason::stop_id) streamed[&output].push_back(token.token);
  }
  for (auto& [output, ids] : streamed) results_.stream(*output, ids);
  for (TokenLogprobs& one : engine_.take_logprobs()) open_.at(one.request)->logprobs.push_back(std::move(one));
  for (TokenLogprobs& one : engine_.take_prompt_logprobs())
    open_.at(one.request)->prompt_logprobs.push_back(std::move(one));
  for (const HiddenRows& rows : engine_.take_hidden()) {
    LineOutput& output = *open_.at(rows.request);
    output.hidden.insert(output.hidden.end(), rows.values.begin(), rows.values.end());
    output.hidden_tokens += rows.rows;
  }
}

void Serving::take_ends() {
  for (const Resolution& end : engine_.take_resolutions()) {
    const std::unique_ptr<LineOutput> output = std::move(open_.at(end.request));
    open_.erase(end.request);
    if (output->batch)
      end_of_batch(*output, end);
    else
      results_.end(*output, end);
    show_progress();
  }
}

// What was chosen so far is printed.
void Serving::cancel_all() {
  cancelled_ = true;
  source_.stop();
  for (const auto& [id, output] : open_) engine_.cancel(id);
}

// Not between the results, where both go to the terminal.
void Serving::show_progress() {
  if (isatty(STDOUT_FILENO) == 0)
    progress_.show(static_cast<uint64_t>(results_.count()), static_cast<uint64_t>(outputs_));
}

void Serving::print_summary() const {
  const EngineStats& stats = engine_.stats();
  std::string ends;
  for (const auto& [reason, count] : results_.counts())
    ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", count, reason);
  const KvPool::Stats& pool = engine_.pipeline().pool().stats();
  say("requests  {} in {:.3f} s: {}\n", results_.count(), seconds_, ends);
  say("tokens    {} of prompts ({} found in the cache), {} chosen, {:.1f} a second\n", pool.prompt_tokens,
      pool.found_tokens, stats.output_tokens, static_cast<double>(stats.output_tokens) / seconds_);
  say("{}", serving_report(engine_));
  const auto times = [](const char* what, std::vector<double> ms) {
    if (ms.empty()) return;
    std::ranges::sort(ms);
    const auto at = [&](double share) { return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))]; };
    say("{}{:.3f} ms at the median, {:.3f} at the 99th percentile\n", what, at(0.5), at(0.99));
  };
  times("first     token after ", first_ms_);
  times("next      token after ", next_ms_);
}

}  // namespace nodewright::cli
