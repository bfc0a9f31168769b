#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json_file.h"
#include "engine/engine_parts.h"
#include "engine/sampling/sampling_range.h"
#include "engine/sampling/seeds.h"

namespace nodewright {
namespace {

std::vector<Device*> devices_of(std::span<const ModelPlace> ranks) {
  std::vector<Device*> devices;
  for (const ModelPlace& place : ranks) devices.push_back(place.device);
  return devices;
}

}  // namespace

Engine::Engine(std::span<const ModelPlace> ranks, const EngineOptions& options)
    : options_(completed_options(options, ranks[0].model->config(), *ranks[0].device)),
      model_(ranks[0].model),
      scheduling_(scheduling()),
      seed_(options.seed ? *options.seed : random_seed()),
      slots_(ranks, slot_options(options_, model_->config())),
      adapters_(devices_of(ranks), options_.max_adapters),
      pipeline_(KvPool(pool_options(options_, model_->config(), slots_.cache().pages())),
                {.max_context = options.max_context,
                 .depth = options.depth,
                 .reserve = options.reserve,
                 .schedule = options.schedule}),
      drafter_(options.speculate, model_->config().vocab, options.drafts) {
  make_adapter_memory();
}

SchedulerOptions Engine::scheduling() const {
  SchedulerOptions options = scheduling_options(options_);
  if (options_.speculate > 0) options.drafts = [this](const Request& request) { return drafts_of(request); };
  options.mask_work = [this](const Request& request) {
    const auto found = mask_work_.find(request.id());
    return found == mask_work_.end() ? 0 : found->second.expected;
  };
  if (options_.max_adapters > 0)
    options.may_admit = [this](const Request& request) {
      return adapters_.may_place(request.spec().adapter_id, adapters_in_use());
    };
  return options;
}

// A row that is chosen again, by its mask or its penalties, has no drafts: they would be those of another output.
std::vector<int32_t> Engine::drafts_of(const Request& request) const {
  return chooses_again(request.id()) ? std::vector<int32_t>() : drafter_.drafts_of(request);
}

// Whatever the state; empty where nothing speaks against it.
std::string Engine::why_not_serve(const RequestSpec& spec, const Sampling& sampling,
                                  const ChoiceOptions& choice) const {
  const int64_t vocab = model_->config().vocab;
  for (const int32_t token : spec.prompt)
    if (token < 0 || token >= vocab)
      return fmt::format("token {} of the prompt: the vocabulary has {} tokens", token, vocab);
  if (const std::optional<SamplingFault> fault = sampling_fault(sampling))
    return fmt::format("a {} of {}", fault->field, fault->detail);
  if (std::string reason = why_not(choice, spec.stop_ids, vocab); !reason.empty()) return reason;
  if (spec.constrained && !choice.follows_outputs()) return "it is constrained, and nothing gives its masks";
  if (choice.prompt_logprobs >= 0 && options_.followers != nullptr)
    return "it asks for log probabilities of its prompt, which ranks in several processes do not give";
  if (choice.needs_choices() && !options_.choices)
    return "it asks for more than temperature, min_p, top_k and top_p, and this engine has no choices";
  if (!spec.adapter.empty() && adapters_.find(spec.adapter) == 0)
    return fmt::format("no adapter {} is loaded", in_quotes(spec.adapter));
  if (spec.hidden > options_.hidden)
    return fmt::format(
        "it asks for {} hidden states, and the engine's graphs give {}: they are to be built with hidden "
        "states {}",
        name_of(spec.hidden), name_of(options_.hidden), name_of(spec.hidden));
  return "";
}

PipelineState::Submitted Engine::submit(RequestSpec spec, const Sampling& sampling, ChoiceOptions choice) {
  if (std::string reason = why_not_serve(spec, sampling, choice); !reason.empty())
    return {std::nullopt, std::move(reason)};
  spec.constrained = choice.follows_outputs();
  spec.scores_prompt = choice.prompt_logprobs >= 0;
  const int32_t adapter = spec.adapter_id = adapters_.find(spec.adapter);
  PipelineState::Submitted submitted = pipeline_.submit(std::move(spec));
  if (!submitted.id) return submitted;
  if (adapter != 0) {
    adapters_.opened(adapter);
    adapter_of_.emplace(*submitted.id, adapter);
  }
  Sampling& own = sampling_.emplace(*submitted.id, sampling).first->second;
  if (!own.seed) own.seed = derived_seed(seed_, static_cast<uint64_t>(*submitted.id));
  if (choice.needs_choices() || choice.ends) choices_.emplace(*submitted.id, std::move(choice));
  return submitted;
}

bool Engine::advance() {
  const Selection next = select_next(pipeline_, scheduling_);
  switch (next.action) {
    case Selection::Action::idle:
      drained_.reset();
      tell_pages();
      return false;
    case Selection::Action::admit:
      admit();
      break;
    case Selection::Action::preempt:
      pipeline_.preempt();
      break;
    case Selection::Action::launch:
      launch(next.step);
      break;
    case Selection::Action::sample:
      sample();
      break;
    case Selection::Action::start_commit:
      commit();
      break;
  }
  tell_pages();
#ifndef NDEBUG
  pipeline_.check();
#endif
  return true;
}

void Engine::tell_pages() {
  if (!options_.pages_changed) return;
  if (std::vector<PageEvent> events = pipeline_.take_page_events(); !events.empty())
    options_.pages_changed(std::move(events));
}

std::vector<Resolution> Engine::take_resolutions() {
  std::vector<Resolution> resolutions = pipeline_.take_resolutions();
  for (const Resolution& resolution : resolutions) {
    sampling_.erase(resolution.request);
    choices_.erase(resolution.request);
    mask_work_.erase(resolution.request);
    scores_.forget(resolution.request);
    told_hidden_.erase(resolution.request);
    drafter_.forget(resolution.request);
    if (const auto found = adapter_of_.find(resolution.request); found != adapter_of_.end()) {
      adapters_.closed(found->second);
      adapter_of_.erase(found);
    }
  }
  return resolutions;
}

CanRun Engine::can_run(int rows) const {
  if (rows > options_.max_batch)
    return {.reason = fmt::format("{} rows, and at most {} requests are served at once", rows, options_.max_batch)};
  const BucketChoice choice = scheduling_.decode_buckets.choose(rows);
  if (choice.fit != BucketChoice::Fit::none) return {true, choice.bucket, options_.mode, choice.reason};
  return {rows > 0 && options_.allow_eager, 0, RunMode::eager, choice.reason};
}

}  // namespace nodewright
