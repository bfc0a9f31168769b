// What to do next: reads a PipelineState and names one transition, with the rows of the step where it is a launch. Has
// no state, so that asking twice gives the same answer, and what it counts changes only when the transition is made.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/schedule/bucket_set.h"
#include "engine/schedule/pipeline.h"

namespace nodewright {

struct SchedulerOptions {
  BucketSet decode_buckets;   // rows of a decode step
  BucketSet prefill_buckets;  // tokens of a step with a prompt's; they hold the rows of a decode step and one more
  Schedule schedule = Schedule::mixed;  // as the pipeline's
  bool allow_eager = false;  // more rows than the largest decode bucket run without a graph, not in several steps
  // Drafts of a request's next tokens, for decode steps to check; as many are used as there is room for. Depends on the
  // request alone. Empty: none.
  std::function<std::vector<int32_t>(const Request&)> drafts = {};
  // Whether the device may take one more request, the next that waits: its adapter has a slot, or may be given one.
  // Depends on the request and on those admitted alone; one of those makes room when it ends. Empty: always.
  std::function<bool(const Request&)> may_admit = {};
  // Work that the next mask of a constrained request is expected to take, in units of WorkBudget; 0: next to none.
  // Depends on the request alone. Empty: none of them takes any.
  std::function<uint64_t(const Request&)> mask_work = {};
  uint64_t most_mask_work = 4'000'000;  // of the rows of a step together; or one row: about 20 ms of one thread
  int64_t most_sampled = std::numeric_limits<int64_t>::max();  // rows of a step that choose
  // Tokens of a step with a prompt's, the rows that decode included; all of those take part, and one token of a prompt.
  int64_t step_tokens = std::numeric_limits<int64_t>::max();
};

struct Selection {
  enum class Action { admit, preempt, launch, sample, start_commit, idle };
  Action action = Action::idle;
  StepPlan step;  // of a launch
  // Why this bucket, or none; why nothing can be done. Never empty.
  std::string reason;
};

// Where pages run out, what is in flight is committed first: a request may end, and only a request in no step can be
// preempted. The masks of a forward come late: it is sampled as soon as they can be known, and until then the step
// before it is committed. With Schedule::drained a prompt waits until nothing is in flight, and is then preferred to
// rows that decode; otherwise it is a part of the next step.
Selection select_next(const PipelineState& pipeline, const SchedulerOptions& options);

// Rows that can decode, those whose last step is oldest first, in the smallest bucket that holds them. Past the
// largest bucket: its rows only, or all of them eager. No rows: the reason. Drafts take what the rows leave of the
// largest bucket and of their own pages. A request with drafts in flight, or whose tokens suggest some, waits for the
// token in flight: another step is launched meanwhile where more rows can go than wait. Rows whose masks are expected
// to take more than SchedulerOptions::most_mask_work wait for their turn in a later step.
Selection select_decode(const PipelineState& pipeline, const SchedulerOptions& options);

// With Schedule::mixed the rows that can decode, each without drafts, and in what they leave of step_tokens chunks of
// prompts in their turn, half of them for the shortest; otherwise chunks alone.
Selection select_prefill(const PipelineState& pipeline, const SchedulerOptions& options);

}  // namespace nodewright
