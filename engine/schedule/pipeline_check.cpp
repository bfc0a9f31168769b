// The invariants I1 to I6 of a PipelineState, and those of its requests and pages, by recounting.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/schedule/pipeline.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// Formats nothing while all is well.
template <typename... Args>
void demand(bool holds, const char* invariant, fmt::format_string<Args...> detail, Args&&... args) {
  if (holds) return;
  throw Error({.doing = "keep the pipeline's invariant",
               .object = invariant,
               .detail = fmt::format(detail, std::forward<Args>(args)...)});
}

}  // namespace

void PipelineState::check() const {
  check_streams();
  check_slots();
  check_requests();
  check_rows();
  pool_.check();
}

void PipelineState::check_streams() const {
  uint64_t number = committed_, place = 0;
  for (const InFlightStep* step : steps()) {
    demand(step->number == ++number, "I2", "step {} where {} follows", step->number, number);
    demand(step->forward > place, "I1", "the forward of step {} is {}, after {}", number, step->forward, place);
    demand((step->sampling == 0) == (forward_ && step == &*forward_), "I1", "step {} sampled at {}", number,
           step->sampling);
    place = step->sampling == 0 ? step->forward : step->sampling;
    demand(place >= step->forward, "I3", "step {} is sampled at {}, before its forward", number, place);
    demand(place <= submitted_, "I3", "the tokens of step {} wait for {} of {} submitted", number, place, submitted_);
  }
  demand(number == launched_, "I2", "step {} is the newest in flight, {} were launched", number, launched_);
}

void PipelineState::check_slots() const {
  demand(in_flight() <= options_.depth, "I6", "{} steps for {} slots", in_flight(), options_.depth);
  std::vector<bool> taken(kSlots, false);
  for (const InFlightStep* step : steps()) {
    demand(step->slot >= 0 && step->slot < kSlots && !taken[static_cast<size_t>(step->slot)], "I6",
           "step {} is in slot {}", step->number, step->slot);
    taken[static_cast<size_t>(step->slot)] = true;
    demand(options_.schedule == Schedule::mixed || step->plan.kind == StepKind::decode || in_flight() == 1, "I5",
           "prefill step {} among {} in flight", step->number, in_flight());
  }
  demand(mode_ != PipelineMode::paused || is_drained(), "pause", "{} steps in flight", in_flight());
  demand(mode_ != PipelineMode::pausing || !is_drained(), "pause", "nothing in flight, and not paused");
}

void PipelineState::check_requests() const {
  std::map<RequestId, int> rows;
  for (const InFlightStep* step : steps())
    for (const RowPlan& row : step->plan.rows) ++rows[row.request];
  int32_t sequences = 0;
  for (const auto& [id, request] : requests_) {
    const int members = rows.contains(id) ? rows.at(id) : 0;
    demand(request.in_flight() == members && members <= options_.depth, "I4",
           "request {} counts {} of {} steps in flight", id, request.in_flight(), members);
    const RequestPhase phase = request.phase();
    demand(phase != RequestPhase::ended, "life", "request {} has ended and is kept", id);
    demand((phase == RequestPhase::finishing) == request.is_resolved(), "life", "request {} is {}", id, name_of(phase));
    demand(phase != RequestPhase::finishing || members > 0, "life", "request {} is finishing in no step", id);
    demand((phase == RequestPhase::waiting) == (std::ranges::count(waiting_, id) == 1) &&
               (phase != RequestPhase::waiting) == (std::ranges::count(admitted_, id) == 1),
           "life", "request {} is {}, and in the wrong list", id, name_of(phase));
    const auto outputs = static_cast<int64_t>(request.outputs().size());
    demand(outputs <= request.most_outputs(), "budget", "request {} has {} outputs of {}", id, outputs,
           request.most_outputs());
    demand(request.computed() <= request.reserved_length(), "budget", "request {} computes {} positions of {}", id,
           request.computed(), request.reserved_length());
    demand((phase == RequestPhase::waiting) == (request.sequence() < 0), "pages", "request {} is {} with sequence {}",
           id, name_of(phase), request.sequence());
    if (request.is_resolved() || phase == RequestPhase::waiting) continue;
    ++sequences;
    demand(pool_.is_open(request.sequence()), "pages", "request {} has no sequence", id);
    const auto held = static_cast<int64_t>(pool_.table(request.sequence()).size());
    const int64_t most = pool_.pages_for(request.reserved_length());
    const bool at_once = options_.reserve == Reserve::all && pool_.options().window == 0;
    const int64_t least = at_once ? most : pool_.pages_for(request.computed());
    demand(held >= least && held <= most, "pages", "request {} has {} pages, and needs {} to {}", id, held, least,
           most);
    if (phase == RequestPhase::decoding)
      demand(request.computed() == request.prompt_tokens() + request.next_output() - 1 + request.drafted(), "budget",
             "request {} has computed {} positions with {} outputs, {} in flight and {} drafts", id, request.computed(),
             outputs, request.choosing(), request.drafted());
    demand(request.drafted() == 0 || (phase == RequestPhase::decoding && members == 1), "drafts",
           "request {} is {} in {} steps with {} drafts", id, name_of(phase), members, request.drafted());
  }
  for (const auto& [id, members] : rows)
    demand(requests_.contains(id), "I4", "request {} has ended in {} steps", id, members);
  demand(requests_.size() == waiting_.size() + admitted_.size(), "life", "a request is in no list");
  demand(pool_.sequences_in_use() - pool_.sequences_closing() == sequences, "pages",
         "{} sequences are open for {} requests", pool_.sequences_in_use() - pool_.sequences_closing(), sequences);
  demand(!is_drained() || pool_.sequences_closing() == 0, "pages", "a closed sequence waits for nothing");
  demand(mode_ != PipelineMode::failed || (requests_.empty() && pool_.free_pages() == pool_.options().pages), "failure",
         "a request or a page is left");
}

// The rows of each request follow each other up to its computed tokens, and choose once all before is launched.
void PipelineState::check_rows() const {
  struct Rows {
    int64_t end = -1;
    int choosing = 0;
  };
  std::map<RequestId, Rows> rows;
  for (const InFlightStep* step : steps())
    for (const RowPlan& row : step->plan.rows) {
      auto& [end, choosing] = rows[row.request];
      demand(end < 0 || end == row.first, "I5", "a row of request {} begins at {}, behind {}", row.request, row.first,
             end);
      demand(choosing == 0 || row.samples, "I5", "request {} has a chunk behind its prompt's last", row.request);
      demand(row.samples == (row.first + row.tokens >= find(row.request)->prefill_end()), "I5",
             "{} tokens of request {} from {} on, {}", row.tokens, row.request, row.first,
             row.samples ? "sampled" : "not sampled");
      end = row.first + row.tokens;
      choosing += row.samples;
    }
  for (const auto& [id, of_request] : rows) {
    demand(of_request.end == find(id)->computed(), "I5", "the rows of request {} end at {}, and it has computed {}", id,
           of_request.end, find(id)->computed());
    demand(of_request.choosing == find(id)->choosing(), "I5", "request {} counts {} of {} steps that choose", id,
           find(id)->choosing(), of_request.choosing);
  }
}

}  // namespace nodewright
