#include "engine/schedule/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nodewright {
namespace {

using Action = Selection::Action;

RowPlan decode_row(const Request& request) {
  return {request.id(), request.computed(), 1, true, request.next_output()};
}

// No more than the request, the room and the pages allow, which it would have without drafts.
void add_drafts(RowPlan& row, const PipelineState& pipeline, const SchedulerOptions& options, int64_t& room) {
  const Request& request = *pipeline.find(row.request);
  const KvPool& pool = pipeline.pool();
  const int64_t pages =
      std::max(static_cast<int64_t>(pool.table(request.sequence()).size()), pool.pages_for(row.first + 1));
  const int64_t most = std::min({room, request.most_drafts(), pages * pool.options().page_tokens - row.first - 1});
  if (most <= 0 || request.spec().constrained) return;
  row.drafts = options.drafts(request);
  row.drafts.resize(std::min(row.drafts.size(), static_cast<size_t>(most)));
  row.tokens = row.chosen();
  room -= static_cast<int64_t>(row.drafts.size());
}

// Leaves out those for whose masks the step has no time, in their order.
void leave_out_costly_masks(std::vector<const Request*>& ready, const SchedulerOptions& options) {
  if (!options.mask_work) return;
  uint64_t work = 0;
  std::erase_if(ready, [&](const Request* request) {
    const uint64_t more = request->spec().constrained ? options.mask_work(*request) : 0;
    if (more > 0 && work > 0 && work + more > options.most_mask_work) return true;
    work += more;
    return false;
  });
}

// Those whose last step is oldest first, so that none waits while another has two turns.
std::vector<const Request*> ready_to_decode(const PipelineState& pipeline, const SchedulerOptions& options) {
  std::vector<const Request*> ready;
  for (RequestId id : pipeline.admitted())
    if (const Request* request = pipeline.find(id); request->can_decode()) ready.push_back(request);
  std::ranges::stable_sort(ready, {}, &Request::last_step);
  leave_out_costly_masks(ready, options);
  return ready;
}

// Leaves out the requests whose next drafts depend on a token in flight; how many wait for one.
size_t leave_out_drafting(std::vector<const Request*>& ready, const PipelineState& pipeline,
                          const SchedulerOptions& options) {
  const auto drafting =
      std::ranges::count_if(pipeline.admitted(), [&](RequestId id) { return pipeline.find(id)->drafted() > 0; });
  const auto would_draft = [&options](const Request* request) {
    return request->in_flight() > 0 && !request->spec().constrained &&
           request->next_output() + 1 < request->most_outputs() && !options.drafts(*request).empty();
  };
  return static_cast<size_t>(drafting) + std::erase_if(ready, would_draft);
}

// As many as the buckets hold with one token of a prompt.
std::vector<RowPlan> rows_beside_prompts(const PipelineState& pipeline, const SchedulerOptions& options) {
  std::vector<const Request*> ready = ready_to_decode(pipeline, options);
  const int most = std::min(options.decode_buckets.largest(), options.prefill_buckets.largest() - 1);
  if (!options.allow_eager) ready.resize(std::min(ready.size(), static_cast<size_t>(most)));
  std::vector<RowPlan> rows;
  for (const Request* request : ready) rows.push_back(decode_row(*request));
  return rows;
}

bool has_prompt_left(const PipelineState& pipeline) {
  return std::ranges::any_of(pipeline.admitted(), [&](RequestId id) { return pipeline.find(id)->prompt_left() > 0; });
}

// Tokens of a prompt in a step.
struct PromptShare {
  const Request* request;
  int64_t tokens = 0;
};

// What a step has for prompts: tokens, those of one prompt at most, rows that choose.
struct PromptRoom {
  int64_t room = 0, most = 0, sampled = 0;

  // As many of the prompt's next tokens as there is room for, and `limit` at most; how many they are.
  int64_t give(PromptShare& share, int64_t limit) {
    const int64_t left = share.request->prompt_left() - share.tokens;
    int64_t tokens = std::min({room, limit, most - share.tokens, left});
    if (tokens == left && sampled == 0) --tokens;  // the last waits for a step in which it may choose
    if (tokens <= 0) return 0;
    if (tokens == left) --sampled;
    share.tokens += tokens;
    room -= tokens;
    return tokens;
  }
};

// Half of the room goes to prompts in their turn (engine/schedule/turn_lines.h), those that are begun first, so that
// each comes to its end. In the other half prompts that end with this step come first, the first of each call, so that
// a short one waits for no long one; what remains goes to all in their turn.
std::vector<PromptShare> shared_room(const PipelineState& pipeline, PromptRoom room) {
  std::vector<PromptShare> shares;
  TurnLines turns = pipeline.prompt_turns();
  for (RequestId id : pipeline.admitted())
    if (const Request* begun = pipeline.find(id); begun->prompt_left() > 0 && !turns.waits(begun->turn()))
      shares.push_back({begun});
  const auto begin_next = [&] {
    shares.push_back({pipeline.find(*turns.next())});
    turns.begin(shares.back().request->turn());
  };
  int64_t half = (room.room + 1) / 2;
  for (size_t i = 0; half > 0; ++i) {
    if (i == shares.size()) {
      if (!turns.next()) break;
      begin_next();
    }
    half -= room.give(shares[i], half);
  }
  for (PromptShare& share : shares)
    if (share.request->prompt_left() - share.tokens <= room.room) room.give(share, room.room);
  std::vector<const Request*> firsts;
  for (const RequestId id : turns.firsts()) firsts.push_back(pipeline.find(id));
  std::ranges::stable_sort(firsts, {}, &Request::prompt_left);
  for (const Request* first : firsts) {
    if (first->prompt_left() > room.room) break;
    turns.leave(first->turn());
    room.give(shares.emplace_back(PromptShare{first}), room.room);
  }
  for (PromptShare& share : shares) room.give(share, room.room);
  while (room.room > 0 && turns.next()) {
    begin_next();
    room.give(shares.back(), room.room);
  }
  return shares;
}

Selection launch_in(const BucketSet& buckets, StepPlan plan) {
  const BucketChoice choice = buckets.choose(static_cast<int>(plan.tokens()));
  plan.bucket = choice.bucket;
  return {Action::launch, std::move(plan), choice.reason};
}

}  // namespace

Selection select_next(const PipelineState& pipeline, const SchedulerOptions& options) {
  if (pipeline.committing())
    return {Action::idle, {}, fmt::format("the commit of step {} has not finished", pipeline.committing()->number)};
  if (pipeline.why_not_admit().empty() && (!options.may_admit || options.may_admit(*pipeline.next_waiting())))
    return {Action::admit, {}, "the next waiting request fits"};
  if (pipeline.forward()) {
    if (pipeline.masks_needed()) return {Action::sample, {}, "the masks can be known"};
    return {Action::start_commit, {}, "a mask depends on the token before"};
  }
  if (const Request* yields = pipeline.yielding()) {
    const std::string reason = fmt::format("request {} gives way to request {}, of a call of which nothing runs",
                                           yields->id(), pipeline.next_waiting()->id());
    if (pipeline.is_drained()) return {Action::preempt, {}, reason};
    return {pipeline.sampled().empty() ? Action::idle : Action::start_commit, {}, reason};
  }
  const bool wants_prefill = has_prompt_left(pipeline);
  Selection launch = wants_prefill ? select_prefill(pipeline, options) : select_decode(pipeline, options);
  if (wants_prefill && options.schedule == Schedule::mixed && launch.action == Action::idle)
    launch = select_decode(pipeline, options);
  if (launch.action == Action::launch) {
    const int64_t missing = pipeline.pages_short(launch.step);
    if (missing == 0) return launch;
    launch = {
        pipeline.is_drained() ? Action::preempt : Action::idle, {}, fmt::format("the step is {} pages short", missing)};
    if (pipeline.is_drained()) return launch;
  }
  if (!pipeline.sampled().empty()) return {Action::start_commit, {}, launch.reason};
  return launch;
}

Selection select_decode(const PipelineState& pipeline, const SchedulerOptions& options) {
  if (std::string why = pipeline.why_not_launch(StepKind::decode); !why.empty()) return {Action::idle, {}, why};
  std::vector<const Request*> ready = ready_to_decode(pipeline, options);
  if (options.drafts) {
    const size_t waiting = leave_out_drafting(ready, pipeline, options);
    if (!pipeline.is_drained() && ready.size() <= waiting && waiting > 0)
      return {Action::idle, {}, fmt::format("drafts of {} requests depend on what is in flight", waiting)};
  }
  if (ready.empty())
    return {Action::idle, {}, fmt::format("none of {} admitted requests can decode", pipeline.admitted().size())};
  const size_t found = ready.size(), most = static_cast<size_t>(options.decode_buckets.largest());
  if (!options.allow_eager) ready.resize(std::min(found, most));
  StepPlan plan{.kind = StepKind::decode};
  for (const Request* request : ready) plan.rows.push_back(decode_row(*request));
  if (options.drafts) {
    auto room = static_cast<int64_t>(most) - static_cast<int64_t>(ready.size());
    for (RowPlan& row : plan.rows) add_drafts(row, pipeline, options, room);
  }
  Selection launch = launch_in(options.decode_buckets, std::move(plan));
  if (found > ready.size())
    launch.reason = fmt::format("{} rows are ready, and the largest bucket has {}", found, ready.size());
  return launch;
}

Selection select_prefill(const PipelineState& pipeline, const SchedulerOptions& options) {
  if (std::string why = pipeline.why_not_launch(StepKind::prefill); !why.empty()) return {Action::idle, {}, why};
  StepPlan plan{.kind = StepKind::prefill};
  if (options.schedule == Schedule::mixed) plan.rows = rows_beside_prompts(pipeline, options);
  const auto decoding = static_cast<int64_t>(plan.rows.size());
  const int64_t budget = std::min<int64_t>(options.step_tokens, options.prefill_buckets.largest());
  const int64_t room = std::max<int64_t>(budget - decoding, 1), sampled = options.most_sampled - decoding;
  const KvPoolOptions& pages = pipeline.pool().options();
  const int64_t most = pipeline.pool().gives_back() ? pages.chunk : room;  // of one request
  for (const PromptShare& share : shared_room(pipeline, {.room = room, .most = most, .sampled = sampled})) {
    const Request& request = *share.request;
    if (share.tokens == 0) continue;
    plan.rows.push_back(
        {request.id(), request.computed(), share.tokens, share.tokens == request.prompt_left(), request.next_output()});
  }
  if (plan.tokens() == decoding) return {Action::idle, {}, "no admitted request has a prompt left that may go on"};
  return launch_in(options.prefill_buckets, std::move(plan));
}

}  // namespace nodewright
