// A PipelineState whose invariants are checked after every transition, with short forms for what the tests do often.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/schedule/pipeline.h"
#include "runtime/error.h"
#include "tests/engine/counting_tokens.h"

namespace nodewright {

inline constexpr int64_t kTestPageTokens = 4;
inline constexpr int32_t kStop = 99;  // stop id of every test request

struct PipelineShape {
  int64_t pages = 64;
  int32_t sequences = 8;
  int64_t max_context = 32;
  int depth = kSlots;
  int64_t max_waiting = 1000;
  bool prefix_cache = true;
  Schedule schedule = Schedule::mixed;
};

class PipelineTest : public testing::Test {
 protected:
  explicit PipelineTest(const PipelineShape& shape = {}) { start_over(shape); }

  void start_over(const PipelineShape& shape) {
    state_.emplace(KvPool({.pages = shape.pages,
                           .page_tokens = kTestPageTokens,
                           .sequences = shape.sequences,
                           .prefix_cache = shape.prefix_cache}),
                   PipelineOptions{.max_context = shape.max_context,
                                   .max_waiting = shape.max_waiting,
                                   .depth = shape.depth,
                                   .schedule = shape.schedule});
  }

  PipelineState& state() { return *state_; }

  RequestId submit(int64_t max_tokens = 8, bool constrained = false, int64_t prompt = 3) {
    const auto submitted = state().submit({.prompt = counting(100 * ++prompts_, prompt),
                                           .max_tokens = max_tokens,
                                           .stop_ids = {kStop},
                                           .constrained = constrained});
    EXPECT_TRUE(submitted.id) << submitted.reason;
    state().check();
    return submitted.id.value_or(0);
  }

  RowPlan row(RequestId id) {
    const Request* request = state().find(id);
    const int64_t left = request ? request->prompt_left() : 0;
    return {id, request ? request->computed() : 0, left > 0 ? left : 1, true, request ? request->next_output() : 0};
  }
  StepPlan decode(const std::vector<RequestId>& ids) {
    StepPlan plan{.kind = StepKind::decode};
    for (RequestId id : ids) plan.rows.push_back(row(id));
    return plan;
  }
  StepPlan prefill(const std::vector<RequestId>& ids) {
    StepPlan plan = decode(ids);
    plan.kind = StepKind::prefill;
    return plan;
  }

  const InFlightStep& launch(StepPlan plan) {
    const InFlightStep& step = state().launch(std::move(plan));
    state().check();
    return step;
  }
  const InFlightStep& launch(const std::vector<RequestId>& ids) { return launch(decode(ids)); }
  void sample() {
    state().sample(state().masks_needed().value());
    state().check();
  }
  std::vector<CommittedToken> finish(std::vector<int32_t> tokens) {
    std::vector<RowResult> results;
    for (int32_t token : tokens) results.push_back({.token = token});
    auto accepted = state().finish_commit(results);
    state().check();
    return accepted;
  }
  // The next step of this request, with drafts.
  void step_with(RequestId id, std::vector<int32_t> drafts) {
    StepPlan plan = decode({id});
    plan.rows[0].tokens += static_cast<int64_t>(drafts.size());
    plan.rows[0].drafts = std::move(drafts);
    launch(std::move(plan));
    sample();
  }
  // Commits a step of one row: the tokens chosen after its token and after each draft.
  std::vector<CommittedToken> commit_chosen(const std::vector<int32_t>& chosen) {
    RowResult result{.token = chosen.at(0)};
    for (size_t i = 1; i < chosen.size(); ++i) result.behind_drafts.push_back({.token = chosen[i]});
    state().start_commit();
    auto accepted = state().finish_commit({{result}});
    state().check();
    return accepted;
  }
  // One token for each row of the oldest step.
  std::vector<CommittedToken> commit(std::vector<int32_t> tokens) {
    state().start_commit();
    state().check();
    return finish(std::move(tokens));
  }
  std::vector<CommittedToken> commit() {
    return commit(std::vector<int32_t>(state().sampled().front().plan.rows.size(), 7));
  }
  void step(const std::vector<RequestId>& ids) {
    launch(ids);
    sample();
  }
  // Admitted, prefilled, and with its first output.
  RequestId decoding(int64_t max_tokens = 8, bool constrained = false, int64_t prompt = 3) {
    const RequestId id = submit(max_tokens, constrained, prompt);
    EXPECT_TRUE(state().admit());
    state().check();
    launch(prefill({id}));
    sample();
    commit();
    return id;
  }

  // The transition throws, names itself and the state, and changes nothing.
  void refused(const std::function<void()>& transition, const std::string& part) {
    const std::string before = state().describe();
    try {
      transition();
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(before), std::string::npos) << error.what();
    }
    EXPECT_EQ(state().describe(), before);
    state().check();
  }

  std::vector<std::pair<RequestId, EndReason>> ends() {
    std::vector<std::pair<RequestId, EndReason>> all;
    for (const Resolution& resolution : state().take_resolutions())
      all.emplace_back(resolution.request, resolution.reason);
    return all;
  }
  using Ends = std::vector<std::pair<RequestId, EndReason>>;

 private:
  std::optional<PipelineState> state_;
  int32_t prompts_ = 0;
};

}  // namespace nodewright
