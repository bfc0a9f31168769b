// Tokens of an engine that are chosen a second time, by masks and penalties, and ends that their requests find.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <span>
#include <vector>

#include "base/work_budget.h"
#include "engine/engine.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// Units of WorkBudget, a few nanoseconds each. All masks of a step together: a third of a second at worst, which a step
// reaches only where many rows turn costly at once (SchedulerOptions::mask_work keeps those apart that have been).
constexpr uint64_t kMostMaskWork = 64'000'000;
constexpr uint64_t kLeastMaskWork = 1'000'000;  // that every mask may take, about a walk over a large vocabulary
constexpr uint64_t kCheapMask = 20'000;         // 0.1 ms: not worth a turn

// What `work` throws; empty when it does not. An error of use is the request's own.
template <class Work>
OwnerFailure failure_of(const Work& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {error.what(), error.parts().fault == Fault::usage};
  } catch (const std::exception& error) {
    return {error.what()};
  } catch (...) {
    return {"it threw no std::exception"};
  }
}

}  // namespace

bool Engine::chooses_again(RequestId id) const {
  const auto choice = choices_.find(id);
  return choice != choices_.end() && choice->second.shapes();
}

// The second choice of the forward's rows, in the order of the rows.
void Engine::sample() {
  const InFlightStep& step = *pipeline_.forward();
  const int slot = step.slot;
  std::vector<int32_t>& choice_of = choice_of_row_[static_cast<size_t>(slot)];
  choice_of.clear();
  int32_t step_row = 0, choices = 0;
  std::vector<MaskKey> masks;
  for (const RowPlan& row : step.plan.rows) {
    if (!row.samples) continue;
    const bool again = choose_again(slot, row, step_row, choices, masks);
    step_row += static_cast<int32_t>(row.chosen());
    choice_of.push_back(again ? choices++ : -1);
    choice_of.resize(static_cast<size_t>(step_row), -1);
  }
  try {
    pipeline_.sample(masks);
    slots_.sample(slot, choices);
  } catch (const Error& error) {
    pipeline_.fail(error.what());
  }
}

// Runs `work`, the making of a mask or the look for an end. What all of a step take is limited, and each may take half
// of what is left, so that those that come last find some.
OwnerFailure Engine::failure_of_owner(RequestId id, const std::function<void()>& work) {
  const uint64_t left = kMostMaskWork - std::min(step_mask_work_, kMostMaskWork);
  const uint64_t most = std::max(left / 2, kLeastMaskWork);
  const WorkBudget budget(most);
  OwnerFailure failure = failure_of([&] {
    try {
      work();
    } catch (const WorkExceeded&) {
      throw Error(
          {.doing = "follow the grammar",
           .detail = fmt::format("it takes more than {} units of work, half of what other requests left in this "
                                 "step, where they took {} of {}",
                                 most, step_mask_work_, kMostMaskWork),
           .advice = "a simpler structure, or fewer requests of such structures at once",
           .fault = Fault::usage});
    }
  });
  step_mask_work_ += budget.spent();
  mask_work_[id].so_far += budget.spent();
  return failure;
}

// False where nothing is to be chosen again: the request asks for nothing, or has ended, perhaps just now.
bool Engine::choose_again(int slot, const RowPlan& row, int32_t step_row, int32_t choice_row,
                          std::vector<MaskKey>& masks) {
  const auto choice = choices_.find(row.request);
  const Request& request = *pipeline_.find(row.request);
  if (choice == choices_.end() || !choice->second.shapes() || request.is_resolved()) return false;
  const ChoiceInputs& in = slots_.choices(slot);
  const ChoiceOptions& options = choice->second;
  if (options.follows_outputs())
    masks.push_back({row.request, static_cast<int64_t>(request.outputs().size())});  // of what it is made from
  if (options.allow) {
    const std::span<uint32_t> mask = cleared_mask(in, choice_row);
    const OwnerFailure failure = failure_of_owner(row.request, [&] { options.allow(request.outputs(), mask); });
    MaskWork& work = mask_work_[row.request];  // the next token may take as much, or half of what one took before
    work.expected = std::max(work.expected / 2, work.so_far < kCheapMask ? 0 : work.so_far);
    work.so_far = 0;
    if (!failure.why.empty()) {
      pipeline_.fail_request(row.request, fmt::format("the mask of output {}: {}", row.output, failure.why),
                             failure.by_request);
      return false;
    }
  }
  write_choice(in, choice_row,
               {.step_row = step_row,
                .sequence = request.sequence(),
                .output = row.output,
                .sampling = sampling_.at(row.request),
                .options = options,
                .stop_ids = request.spec().stop_ids,
                .outputs = request.outputs()});
  return true;
}

RowResult Engine::chosen_again(int slot, const RowPlan& row, int32_t choice,
                               std::map<RequestId, TokenLogprobs>& logprobs) const {
  const ChoiceOutputs& out = slots_.chosen(slot);
  RowResult result{.token = out.tokens.data[choice]};
  if (out.kept.data[choice] == 0) {
    result.token = -1;
    result.failure =
        fmt::format("nothing may be chosen as output {}: its mask and biases deny every token", row.output);
  }
  const auto asked = choices_.find(row.request);
  if (asked == choices_.end() || asked->second.logprobs < 0) return result;
  logprobs.emplace(row.request, logprobs_of(out, choice, row.request, row.output, asked->second.logprobs));
  return result;
}

// Asks for each of the row's tokens that the request will accept.
void Engine::ask_for_ends(const RowPlan& row, RowResult& first) {
  const SharedList<int32_t>& stop_ids = pipeline_.find(row.request)->spec().stop_ids;
  RowResult* result = &first;
  for (size_t d = 0;; ++d) {
    ask_for_end(row.request, *result);
    const bool ends =
        result->completes_stop_string || result->completes_grammar || std::ranges::count(stop_ids, result->token) > 0;
    if (ends || d == row.drafts.size() || result->token != row.drafts[d]) return;
    result = &first.behind_drafts[d];
  }
}

// What the request's owner says about the end that the token brings.
void Engine::ask_for_end(RequestId id, RowResult& result) {
  const auto choice = choices_.find(id);
  const Request& request = *pipeline_.find(id);
  if (choice == choices_.end() || !choice->second.ends || request.is_resolved() || result.token < 0) return;
  if (std::ranges::count(request.spec().stop_ids, result.token) > 0) return;
  const OwnerFailure failure = failure_of_owner(id, [&] {
    const std::optional<EndReason> end = choice->second.ends(result.token);
    result.completes_stop_string = end == EndReason::stop_string;
    result.completes_grammar = end == EndReason::complete;
  });
  if (!failure.why.empty())
    pipeline_.fail_request(id, fmt::format("the end after output {}: {}", request.outputs().size(), failure.why),
                           failure.by_request);
}

}  // namespace nodewright
