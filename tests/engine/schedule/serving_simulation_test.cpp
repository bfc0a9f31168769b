// Many requests at once through scheduler, pipeline and pool on a simulated device: each gets the tokens that it gets
// alone, whatever arrives, ends, is cancelled, paused or fails beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "engine/schedule/scheduler.h"
#include "tests/engine/schedule/simulated_device.h"

namespace nodewright {
namespace {

constexpr int64_t kSimulatedPage = 4, kSimulatedPages = 40, kSimulatedContext = 40;
constexpr int32_t kSimulatedSequences = 7;
constexpr int32_t kSimulatedStop = 0, kA = 5, kB = 6;

struct Job {
  RequestSpec spec;
  uint64_t seed = 0;
};

// The grammar (ab)*, which may stop after a b.
Mask allowed_next(const Job& job, const std::vector<int32_t>& outputs) {
  if (!job.spec.constrained) return kEverything;
  return !outputs.empty() && outputs.back() == kA ? 1u << kB : 1u << kA | 1u << kSimulatedStop;
}

std::vector<int32_t> served_alone(const Job& job) {
  std::vector<uint64_t> keys;
  std::vector<int32_t> outputs;
  const auto read = [&keys](int32_t token) {
    uint64_t attended = 0;
    for (uint64_t key : keys) attended = mixed(attended, key);
    keys.push_back(mixed(attended, static_cast<uint64_t>(token)));
  };
  for (int32_t token : job.spec.prompt) read(token);
  const auto prompt = static_cast<int64_t>(job.spec.prompt.size());
  const int64_t most = std::min(job.spec.max_tokens, kSimulatedContext - prompt);
  while (true) {
    outputs.push_back(
        chosen_token(keys.back(), job.seed, static_cast<int64_t>(outputs.size()), allowed_next(job, outputs)));
    if (outputs.back() == kSimulatedStop || static_cast<int64_t>(outputs.size()) == most) return outputs;
    read(outputs.back());
  }
}

struct Setting {
  const char* name = "";
  int depth = kSlots;
  bool prefix_cache = true;
  Schedule schedule = Schedule::mixed;
  int64_t chunk = 8;       // tokens of a step with a prompt's
  int largest_bucket = 4;  // below the sequences: some rows wait for the next step
  bool allow_eager = false;
  int eagerness = 0;  // of 4: how often the device runs ahead of what it must
  Reserve reserve = Reserve::all;
  int64_t pages = kSimulatedPages;
  int drafts = 0;  // of a row, most of them right
};

// The loop of an engine, with nothing in it but what the host half asks for.
class Serving {
 public:
  Serving(const Setting& setting, uint32_t seed)
      : options_{.decode_buckets = BucketSet::up_to(setting.largest_bucket),
                 .prefill_buckets =
                     BucketSet::up_to(std::max(static_cast<int>(setting.chunk), setting.largest_bucket + 1)),
                 .schedule = setting.schedule,
                 .allow_eager = setting.allow_eager,
                 .drafts = drafting(setting.drafts),
                 .step_tokens = setting.chunk},
        eagerness_(setting.eagerness),
        random_(seed),
        pages_(setting.pages),
        device_(setting.pages, kSimulatedPage, kSimulatedSequences),
        state_(KvPool({.pages = setting.pages,
                       .page_tokens = kSimulatedPage,
                       .sequences = kSimulatedSequences,
                       .prefix_cache = setting.prefix_cache}),
               {.max_context = kSimulatedContext,
                .depth = setting.depth,
                .reserve = setting.reserve,
                .schedule = setting.schedule}) {}

  RequestId submit(const Job& job) {
    const RequestId id = state_.submit(job.spec).id.value();
    jobs_[id] = job;
    return id;
  }

  // One action; false when there is nothing to do.
  bool act() {
    const Selection next = select(state_, options_);
    EXPECT_FALSE(next.reason.empty());
    switch (next.action) {
      case Selection::Action::idle:
        return false;
      case Selection::Action::admit:
        EXPECT_TRUE(state_.admit());
        break;
      case Selection::Action::preempt:
        state_.preempt();
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
    state_.check();
    for (int i = 0; i < eagerness_; ++i)
      if (random_() % 4 == 0) device_.run_one();
    for (Resolution& resolution : state_.take_resolutions()) {
      EXPECT_FALSE(resolutions.contains(resolution.request)) << "request " << resolution.request << " resolved again";
      resolutions[resolution.request] = std::move(resolution);
    }
    return true;
  }

  PipelineState& state() { return state_; }
  const Job& job(RequestId id) const { return jobs_.at(id); }

  std::function<Selection(const PipelineState&, const SchedulerOptions&)> select = select_next;
  std::map<RequestId, Resolution> resolutions;
  // The most steps in a row that did not have a request which could decode: whose token budget and slots leave room,
  // and which waits for no draft in flight.
  int64_t longest_wait = 0;
  int refuse_launches = 0;  // of 8: how often a launch fails before it is dispatched
  int64_t zombies = 0, eager_steps = 0, revoked = 0, accepted_drafts = 0, drafted = 0;

 private:
  // What it chooses alone, wrong at a place of its own for each number of outputs.
  std::function<std::vector<int32_t>(const Request&)> drafting(int most) {
    if (most == 0) return {};
    return [this, most](const Request& request) {
      std::vector<int32_t> drafts = served_alone(jobs_.at(request.id()));
      drafts.erase(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(request.outputs().size()));
      drafts.resize(static_cast<size_t>(most), 1);
      drafts[mixed(static_cast<uint64_t>(request.id()), request.outputs().size()) % 4 % drafts.size()] ^= 1;
      return drafts;
    };
  }

  void watch_progress(const StepPlan& plan) {
    for (const RequestId id : state_.admitted()) {
      const Request& request = *state_.find(id);
      const bool waits_for_token = options_.drafts && request.in_flight() > 0;
      const bool takes_part = std::ranges::count(plan.rows, id, &RowPlan::request) > 0;
      if (takes_part || !request.can_decode() || waits_for_token)
        waited_[id] = 0;
      else
        longest_wait = std::max(longest_wait, ++waited_[id]);
    }
  }

  void launch(const StepPlan& plan) {
    watch_progress(plan);
    EXPECT_TRUE(plan.bucket >= plan.tokens() || options_.allow_eager);
    const InFlightStep& step = state_.launch(plan);
    if (static_cast<int>(random_() % 8) < refuse_launches) {
      ++revoked;
      waited_.clear();  // their turns begin anew
      return state_.revoke();
    }
    eager_steps += plan.bucket == 0;
    SimulatedDevice::Slot& slot = device_.slot(step.slot);
    slot.rows.clear();
    for (const RowPlan& row : plan.rows) {
      const Request& request = *state_.find(row.request);
      std::vector<int32_t> tokens;
      if (row.first < request.prefill_end())
        for (int64_t p = row.first; p < row.first + row.tokens; ++p) tokens.push_back(request.token_at(p));
      else if (options_.drafts && request.knows(row.first))
        tokens.push_back(request.token_at(row.first));
      slot.rows.push_back(
          {request.sequence(), row.first, std::move(tokens), row.samples, jobs_.at(row.request).seed, row.output});
      for (const int32_t draft : row.drafts) {
        SimulatedDevice::Row behind = slot.rows.back();
        ++behind.first, ++behind.output;
        behind.tokens = {draft};
        slot.rows.push_back(std::move(behind));
      }
    }
    slot.masks.assign(slot.rows.size(), 0);  // nothing is allowed until sampling says otherwise
    slot.tokens.assign(slot.rows.size(), -1);
    device_.submit_forward(step, state_.pool());
  }

  void sample() {
    const std::vector<MaskKey> keys = state_.masks_needed().value();
    const InFlightStep& step = state_.sample(keys);
    SimulatedDevice::Slot& slot = device_.slot(step.slot);
    size_t i = 0;
    for (const RowPlan& row : step.plan.rows) {
      const Request* request = state_.find(row.request);
      const bool needs = std::ranges::count(keys, MaskKey{row.request, row.output}) > 0;
      slot.masks.at(i++) = needs ? allowed_next(jobs_.at(row.request), request->outputs()) : kEverything;
      for (size_t d = 0; d < row.drafts.size(); ++d) slot.masks.at(i++) = kEverything;
    }
    device_.submit_sampling(step);
  }

  void commit() {
    const InFlightStep& step = state_.start_commit();
    device_.wait_for(step);
    SimulatedDevice::Slot& slot = device_.slot(step.slot);
    std::vector<RowResult> results;
    size_t next = 0;
    int64_t drafts = 0;
    for (const RowPlan& row : step.plan.rows) {
      const bool is_zombie = state_.find(row.request)->is_resolved();
      zombies += is_zombie;
      results.push_back({.token = slot.tokens.at(next++)});
      for (size_t d = 0; d < row.drafts.size(); ++d)
        results.back().behind_drafts.push_back({.token = slot.tokens.at(next++)});
      if (row.drafts.empty() || is_zombie) continue;
      drafts += static_cast<int64_t>(row.drafts.size());
      accepted_drafts -= 1;  // one token is accepted without a draft
      drafted_.insert(row.request);
    }
    int64_t accepted = 0;
    for (const CommittedToken& token : state_.finish_commit(results)) accepted += drafted_.contains(token.request);
    drafted_.clear();
    accepted_drafts += accepted;
    drafted += drafts;
    slot = {};  // free: a late reader finds nothing
    for (int32_t page = 0; page < pages_; ++page)
      if (state_.pool().state_of(page) == PageState::free) device_.poison_page(page);
  }

  SchedulerOptions options_;
  int eagerness_;
  std::mt19937 random_;
  int64_t pages_;
  SimulatedDevice device_;
  PipelineState state_;
  std::map<RequestId, Job> jobs_;
  std::map<RequestId, int64_t> waited_;  // steps that it could have had a row in, one after the other
  std::set<RequestId> drafted_;          // in the step that is committed
};

class ServingTest : public testing::Test {
 protected:
  std::mt19937 random_{5};

  int64_t up_to(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most + 1)); }

  Job any_job() {
    Job job{.spec = {.max_tokens = 1 + up_to(20), .stop_ids = {kSimulatedStop}, .constrained = up_to(3) == 0},
            .seed = random_()};
    // Few beginnings, so that prompts share pages.
    const auto beginning = static_cast<int32_t>(up_to(2));
    for (int64_t i = up_to(3) * 4; i > 0; --i) job.spec.prompt.push_back(beginning);
    for (int64_t i = up_to(5); i > 0 || job.spec.prompt.empty(); --i)
      job.spec.prompt.push_back(static_cast<int32_t>(up_to(kVocabulary - 1)));
    return job;
  }

  static void expect_like_alone(const Serving& serving, RequestId id) {
    const Resolution& got = serving.resolutions.at(id);
    std::vector<int32_t> expected = served_alone(serving.job(id));
    if (got.reason == EndReason::cancelled) {
      ASSERT_LE(got.outputs.size(), expected.size());
      expected.resize(got.outputs.size());
    } else {
      EXPECT_EQ(got.reason, expected.back() == kSimulatedStop ? EndReason::stop_id : EndReason::length);
    }
    EXPECT_EQ(got.outputs, expected) << "request " << id;
  }
};

class ServingSimulation : public ServingTest, public testing::WithParamInterface<Setting> {};

TEST_P(ServingSimulation, GivesEveryRequestTheTokensThatItGetsAlone) {
  Serving serving(GetParam(), 1);
  serving.refuse_launches = 1;
  constexpr RequestId kRequests = 200;
  RequestId submitted = 0;
  while (static_cast<RequestId>(serving.resolutions.size()) < kRequests) {
    if (submitted < kRequests && up_to(5) == 0)
      for (int64_t i = up_to(3); i >= 0 && submitted < kRequests; --i) {
        Job job = any_job();
        submitted = serving.submit(job);
        job.spec.like = submitted;
        for (int64_t n = up_to(7) == 0 ? 2 : 0; n > 0 && submitted < kRequests; --n) {
          job.seed = random_();
          submitted = serving.submit(job);
        }
      }
    if (submitted > 0 && up_to(60) == 0) serving.state().cancel(submitted - up_to(std::min<int64_t>(submitted - 1, 9)));
    if (up_to(80) == 0 && serving.state().mode() == PipelineMode::running) serving.state().pause();
    const bool acted = serving.act();
    if (serving.state().mode() == PipelineMode::paused) {
      EXPECT_EQ(serving.state().pool().sequences_closing(), 0);
      serving.state().resume(up_to(1) ? PipelineState::Rebuilt::graphs : PipelineState::Rebuilt::nothing);
    } else if (!acted) {
      ASSERT_TRUE(submitted < kRequests || static_cast<RequestId>(serving.resolutions.size()) == kRequests)
          << serving.state().describe();
    }
    if (HasFailure()) FAIL() << serving.state().describe();
  }
  while (serving.act()) continue;  // zombies
  for (RequestId id = 1; id <= kRequests; ++id) expect_like_alone(serving, id);
  EXPECT_EQ(serving.state().pool().owned_pages(), 0);
  EXPECT_GT(serving.revoked, 10);
  // Decoding rows wait for nothing but their turn, where buckets hold fewer of them than there may be.
  // One turn more after a revoked step, whose rows come after each other's.
  const int64_t turns = GetParam().allow_eager ? 0 : (kSimulatedSequences - 1) / GetParam().largest_bucket;
  if (GetParam().schedule == Schedule::mixed) {
    EXPECT_LE(serving.longest_wait, turns == 0 ? 0 : turns + 1);
  }

  // The runs went where it is hard.
  const bool runs_ahead = GetParam().depth == kSlots && GetParam().drafts == 0;
  EXPECT_GT(serving.zombies, runs_ahead && GetParam().largest_bucket > 1 ? 5 : -1);
  EXPECT_EQ(serving.accepted_drafts > 100, GetParam().drafts > 0) << serving.accepted_drafts;
  EXPECT_EQ(serving.drafted > serving.accepted_drafts + 100, GetParam().drafts > 0) << serving.drafted;
  EXPECT_EQ(serving.eager_steps > 10, GetParam().allow_eager);
  EXPECT_EQ(serving.state().preemptions() > 2, GetParam().reserve == Reserve::prompt);
  EXPECT_GT(serving.state().pool().stats().forked, 5);
  EXPECT_GT(serving.state().pool().stats().found_tokens, GetParam().prefix_cache ? 300 : 0);
}

TEST_P(ServingSimulation, ResolvesEveryRequestOnceWhereverTheDeviceIsLost) {
  for (int lost_after = 0; lost_after < 150; ++lost_after) {
    random_.seed(9);
    Serving serving(GetParam(), 2);
    RequestId submitted = 0;
    for (int i = 0; i < 12; ++i) submitted = serving.submit(any_job());
    for (int i = 0; i < lost_after; ++i) serving.act();
    serving.state().fail("error 700");
    serving.state().check();
    for (const Resolution& resolution : serving.state().take_resolutions()) {
      EXPECT_EQ(resolution.message, "error 700");
      EXPECT_TRUE(serving.resolutions.emplace(resolution.request, resolution).second) << "resolved again";
    }
    EXPECT_EQ(static_cast<RequestId>(serving.resolutions.size()), submitted);
    EXPECT_EQ(serving.state().pool().free_pages(), GetParam().pages);
    EXPECT_FALSE(serving.act());
    if (HasFailure()) FAIL() << "lost after " << lost_after << " actions";
  }
}

// Prompts take what a step holds, and rows that decode what they leave: no result changes, and decoders starve.
Selection prefill_first(const PipelineState& state, const SchedulerOptions& options) {
  Selection planted = select_next(state, options);
  if (planted.action != Selection::Action::launch || planted.step.kind != StepKind::prefill) return planted;
  std::vector<RowPlan> rows, decoding;
  int64_t room = options.step_tokens;
  for (const RowPlan& row : planted.step.rows)
    if (state.find(row.request)->prompt_left() == 0) decoding.push_back(row);
  for (const RequestId id : state.admitted()) {
    const Request& request = *state.find(id);
    const int64_t tokens = std::min(room, request.prompt_left());
    if (tokens > 0)
      rows.push_back({id, request.computed(), tokens, tokens == request.prompt_left(), request.next_output()});
    room -= tokens;
  }
  for (const RowPlan& row : decoding)
    if (room-- > 0) rows.push_back(row);
  planted.step.rows = rows;
  planted.step.bucket = options.prefill_buckets.choose(static_cast<int>(planted.step.tokens())).bucket;
  return planted;
}

TEST_F(ServingTest, SeesDecodersStarveUnderAPlantedPrefillFirstScheduler) {
  for (const bool planted : {false, true}) {
    random_.seed(7);
    Serving serving({.largest_bucket = 32}, 3);
    if (planted) serving.select = prefill_first;
    for (int i = 0; i < 60; ++i) serving.submit(any_job());
    while (serving.act()) continue;
    for (RequestId id = 1; id <= 60; ++id) expect_like_alone(serving, id);
    EXPECT_EQ(serving.longest_wait > 0, planted) << serving.longest_wait;
  }
}

TEST_F(ServingTest, ChoosesTheSameTokensAloneInABatchOfSevenAndAfterZombies) {
  const Job job{.spec = {.prompt = {1, 2, 3, 4, 5}, .max_tokens = 20, .stop_ids = {kSimulatedStop}}, .seed = 11};
  ASSERT_GT(served_alone(job).size(), 5u);
  for (const int others : {0, 6}) {
    Serving serving({}, 3);
    const auto finish = [&serving] {
      while (serving.act()) continue;
    };
    for (int i = 0; i < others; ++i) serving.submit(any_job());
    RequestId id = serving.submit(job);
    finish();
    expect_like_alone(serving, id);
    for (int i = 0; i < others; ++i) serving.submit(any_job());
    for (int i = 0; i < 12; ++i) serving.act();
    for (RequestId other = 1; other <= 13; ++other) serving.state().cancel(other);
    id = serving.submit(job);
    finish();
    expect_like_alone(serving, id);
  }
}

TEST_F(ServingTest, KeepsEveryConstrainedRequestToItsGrammarInMixedBatches) {
  Serving serving({.largest_bucket = 8}, 4);
  std::vector<RequestId> constrained;
  for (int i = 0; i < 30; ++i) {
    Job job = any_job();
    job.spec.constrained = i % 2 == 0;
    const RequestId id = serving.submit(job);
    if (job.spec.constrained) constrained.push_back(id);
  }
  while (serving.act()) continue;
  for (RequestId id : constrained) {
    const std::vector<int32_t>& outputs = serving.resolutions.at(id).outputs;
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_TRUE(outputs[i] == (i % 2 == 0 ? kA : kB) || (i % 2 == 0 && outputs[i] == kSimulatedStop))
          << id << " at " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ServingSimulation,
    testing::Values(
        Setting{.name = "Lazy"}, Setting{.name = "RunningAhead", .eagerness = 3},
        Setting{.name = "WithoutPipelining", .depth = 1}, Setting{.name = "WithoutPrefixCache", .prefix_cache = false},
        Setting{.name = "PromptsApart", .schedule = Schedule::drained}, Setting{.name = "ChunksOfOneToken", .chunk = 1},
        Setting{.name = "WholePrompts", .chunk = 512}, Setting{.name = "BucketOfOne", .largest_bucket = 1},
        Setting{.name = "EveryBucket", .largest_bucket = 32},
        Setting{.name = "EagerPastTheLargest", .largest_bucket = 2, .allow_eager = true},
        Setting{.name = "Speculating", .chunk = 32, .largest_bucket = 16, .eagerness = 2, .drafts = 3},
        Setting{.name = "SpeculatingFarWithoutPipelining", .depth = 1, .chunk = 32, .largest_bucket = 32, .drafts = 7},
        Setting{.name = "SpeculatingAndPreempting",
                .chunk = 32,
                .largest_bucket = 16,
                .eagerness = 3,
                .reserve = Reserve::prompt,
                .pages = 12,
                .drafts = 3},
        Setting{.name = "Preempting", .reserve = Reserve::prompt, .pages = 12},
        Setting{.name = "PreemptingRunningAhead",
                .largest_bucket = 32,
                .eagerness = 3,
                .reserve = Reserve::prompt,
                .pages = 12},
        Setting{
            .name = "PreemptingWithoutPrefixCache", .prefix_cache = false, .reserve = Reserve::prompt, .pages = 11}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nodewright
