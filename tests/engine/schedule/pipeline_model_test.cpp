// Every interleaving of transitions of a small pipeline, and long random ones of a larger: after each of them the
// invariants hold, a second description of the same rules agrees on what was allowed, a transition that was refused has
// changed nothing, and every request has been resolved at most once.
//
// States that are equal in all that decides their future are visited once; the depth is that of the shortest way there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <unordered_set>

#include "engine/schedule/pipeline.h"
#include "engine/schedule/scheduler.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr int32_t kEnd = 99, kNaN = -1, kOther = 7, kUndrafted = 8;  // every draft is kOther

// The rules once more, with steps as lists of requests and no slots, pages or positions.
struct Rules {
  struct Client {
    int64_t most = 0, prompt = 0;  // a preempted request's prompt grows by its outputs
    bool constrained = false;
    bool admitted = false;
    int64_t prompt_launched = 0;
    bool decodes = false;  // its whole prompt is committed
    bool launched() const { return admitted && prompt_launched == prompt; }
    std::vector<int32_t> outputs;
    int resolved = 0;
  };
  struct Flight {
    enum class Stage { forward, sampled, committing } stage = Stage::forward;
    struct Row {
      RequestId id = 0;
      int64_t tokens = 0;  // of the prompt, 0 for a row that decodes
      int64_t drafts = 0;
      bool chooses = false;  // once it is launched: it decodes, or ends its prompt
    };
    bool prefill = false;
    std::vector<Row> rows;
  };
  PipelineMode mode = PipelineMode::running;
  Schedule schedule = Schedule::mixed;
  std::map<RequestId, Client> clients;
  std::deque<Flight> flights;  // oldest first

  int flying(RequestId id) const {
    int count = 0;
    for (const Flight& flight : flights)
      for (const Flight::Row& row : flight.rows) count += row.id == id;
    return count;
  }
  int choosing(RequestId id) const {
    int count = 0;
    for (const Flight& flight : flights)
      for (const Flight::Row& row : flight.rows) count += row.id == id && row.chooses;
    return count;
  }
  int64_t drafting(RequestId id) const {
    int64_t count = 0;
    for (const Flight& flight : flights)
      for (const Flight::Row& row : flight.rows) count += row.id == id ? row.drafts : 0;
    return count;
  }
  bool forward() const { return !flights.empty() && flights.back().stage == Flight::Stage::forward; }
  bool committing() const { return !flights.empty() && flights.front().stage == Flight::Stage::committing; }
  bool sampled() const {
    for (const Flight& flight : flights)
      if (flight.stage == Flight::Stage::sampled) return true;
    return false;
  }
  bool may_decode(const Client& c, RequestId id) const {
    return c.launched() && !c.resolved && flying(id) < 2 && drafting(id) == 0 &&
           static_cast<int64_t>(c.outputs.size()) + choosing(id) < c.most;
  }
  // After a token that is known, and no more than would all be put out.
  bool may_draft(const Client& c, RequestId id, int64_t drafts) const {
    return drafts == 0 ||
           (flying(id) == 0 && !c.constrained && static_cast<int64_t>(c.outputs.size()) + 1 + drafts <= c.most);
  }
  bool may_prefill(const Client& c, RequestId id) const {
    return c.admitted && !c.resolved && !c.launched() && flying(id) < 2;
  }
  bool may_sample() const {
    if (!forward()) return false;
    for (const Flight::Row& row : flights.back().rows) {
      const Client& c = clients.at(row.id);
      if (row.chooses && c.constrained && !c.resolved && choosing(row.id) > 1) return false;
    }
    return true;
  }
  bool may_launch(const Flight& flight) const {
    if (mode != PipelineMode::running || forward() || flights.size() == 2 || flight.rows.empty()) return false;
    const bool is_beside_prompt = !flights.empty() && (flight.prefill || flights.front().prefill);
    if (schedule == Schedule::drained && is_beside_prompt) return false;
    bool prompt = false;
    for (const auto& [id, tokens, drafts, chooses] : flight.rows) {
      if (!clients.contains(id)) return false;
      const Client& c = clients.at(id);
      if (tokens > 0 ? !may_prefill(c, id) || !flight.prefill : !may_decode(c, id)) return false;
      if (drafts > 0 && (tokens > 0 || flight.prefill || !may_draft(c, id, drafts))) return false;
      prompt |= tokens > 0;
    }
    return prompt == flight.prefill;
  }
  void settle() {
    if (mode == PipelineMode::pausing && flights.empty()) mode = PipelineMode::paused;
  }
};

struct ModelAction {
  enum class Kind { submit, cancel, admit, launch, revoke, sample, start, finish, pause, resume, fail, preempt } kind;
  int64_t argument = 0;       // cancel: request; finish: pattern of results; resume: what was rebuilt
  Rules::Flight flight = {};  // launch
};

struct Shape {
  int64_t requests = 2;  // submitted in all
  int64_t pages = 5;
  int32_t sequences = 2;
  Reserve reserve = Reserve::all;
  int64_t drafts = 0;  // the most of a row
  Schedule schedule = Schedule::mixed;
};

class World {
 public:
  explicit World(const Shape& shape)
      : shape_(shape),
        pipeline_(KvPool({.pages = shape.pages, .page_tokens = 2, .sequences = shape.sequences}),
                  {.max_context = 7, .max_waiting = 4, .reserve = shape.reserve, .schedule = shape.schedule}),
        key_(make_key()) {
    rules_.schedule = shape.schedule;
  }

  const PipelineState& pipeline() const { return pipeline_; }
  PipelineState& pipeline() { return pipeline_; }
  const Rules& rules() const { return rules_; }

  // Allowed or not; the same plan with other rows counts as another action.
  std::vector<ModelAction> actions() const {
    using Kind = ModelAction::Kind;
    std::vector<ModelAction> all = {{Kind::admit},     {Kind::revoke},    {Kind::sample},    {Kind::start},
                                    {Kind::finish, 0}, {Kind::finish, 1}, {Kind::finish, 2}, {Kind::finish, 3},
                                    {Kind::pause},     {Kind::resume, 0}, {Kind::resume, 2}, {Kind::fail}};
    for (int64_t pattern = kPatterns; shape_.drafts > 0 && pattern < kPatterns + kDraftPatterns; ++pattern)
      all.push_back({Kind::finish, pattern});
    if (shape_.reserve == Reserve::prompt) all.push_back({Kind::preempt});
    if (static_cast<int64_t>(rules_.clients.size()) < shape_.requests) all.push_back({Kind::submit});
    for (const auto& [id, client] : rules_.clients) all.push_back({Kind::cancel, id});
    // Each request alone and all that could have a row, as decode, as whole prompts, and as chunks of one token.
    Rules::Flight decode, prompts, mixed;
    prompts.prefill = mixed.prefill = true;
    for (const auto& [id, client] : rules_.clients) {
      if (client.resolved && !pipeline_.find(id)) continue;
      const int64_t left = client.prompt - client.prompt_launched;
      all.push_back({Kind::launch, 0, {.prefill = left > 0, .rows = {{id, left}}}});
      if (left > 1) all.push_back({Kind::launch, 0, {.prefill = true, .rows = {{id, 1}}}});
      for (int64_t drafts = 1; drafts <= shape_.drafts; ++drafts)
        all.push_back({Kind::launch, 0, {.prefill = left > 0, .rows = {{id, left, drafts}}}});
      if (left == 0) decode.rows.push_back({id, 0});
      if (client.admitted && !client.resolved) mixed.rows.push_back({id, left});
    }
    if (decode.rows.size() > 1) all.push_back({Kind::launch, 0, decode});
    if (mixed.rows.size() > 1) all.push_back({Kind::launch, 0, mixed});
    for (Rules::Flight::Row& row : decode.rows)
      if (!rules_.clients.at(row.id).constrained) row.drafts = std::min<int64_t>(shape_.drafts, 1);
    if (decode.rows.size() > 1 && shape_.drafts > 0) all.push_back({Kind::launch, 0, decode});
    return all;
  }

  // Whether it was allowed. Fails the test where the pipeline and the rules disagree.
  bool apply(const ModelAction& action) {
    SCOPED_TRACE(name(action) + " in " + key_);
    bool allowed = false;
    const bool expected = follow(action);
    try {
      allowed = transition(action);
    } catch (const Error&) {
      EXPECT_EQ(make_key(), key_) << "a refused transition changed the state";
    }
    EXPECT_EQ(allowed, expected);
    EXPECT_NO_THROW(pipeline_.check());
    compare();
    if (allowed) key_ = make_key();
    return allowed;
  }

  // All that decides what may follow.
  const std::string& key() const { return key_; }
  std::string make_key() const {
    std::string key(name_of(pipeline_.mode()));
    const auto add_step = [&key](const char* stage, const InFlightStep& step) {
      key += fmt::format("|{}{}{}", stage, step.slot, step.plan.kind == StepKind::prefill ? "p" : "d");
      for (const RowPlan& row : step.plan.rows)
        key += fmt::format(" {}:{}+{}{}", row.request, row.first, row.tokens, row.drafts.empty() ? "" : "d");
      for (const PageCopy& copy : step.copies) key += fmt::format(" {}>{}", copy.from, copy.to);
    };
    if (pipeline_.committing()) add_step("c", *pipeline_.committing());
    for (const InFlightStep& step : pipeline_.sampled()) add_step("s", step);
    if (pipeline_.forward()) add_step("f", *pipeline_.forward());
    key += fmt::format("|{}", pipeline_.free_slot().value_or(kSlots));
    for (const auto& [id, client] : rules_.clients) {
      const Request* r = pipeline_.find(id);
      key += fmt::format("|{}r{}", id, client.resolved);
      if (r) key += fmt::format("{}.{}.{}.{}", name_of(r->phase()), r->outputs().size(), r->computed(), r->sequence());
    }
    const KvPool& pool = pipeline_.pool();
    for (int32_t s = 0; s < shape_.sequences; ++s)
      if (pool.is_open(s)) key += fmt::format("|{}", fmt::join(pool.table(s), ","));
    for (int32_t p = 0; p < shape_.pages; ++p) key += static_cast<char>('0' + static_cast<int>(pool.state_of(p)));
    return key;
  }

  static std::string name(const ModelAction& action) {
    static const char* const kNames[] = {"submit", "cancel", "admit", "launch", "revoke", "sample",
                                         "start",  "finish", "pause", "resume", "fail",   "preempt"};
    std::string name = fmt::format("{} {}", kNames[static_cast<int>(action.kind)], action.argument);
    for (const auto& [id, tokens, drafts, chooses] : action.flight.rows)
      name += fmt::format(" {}+{}d{}", id, tokens, drafts);
    return name;
  }

  // Lets the scheduler go on until nothing is left to do, steps having results of this pattern: every request ends, and
  // no page has an owner.
  void finish_everything(int64_t pattern) {
    SchedulerOptions options{BucketSet::up_to(4), BucketSet({5}), shape_.schedule};
    if (shape_.drafts > 0)
      options.drafts = [this](const Request&) { return std::vector(static_cast<size_t>(shape_.drafts), kOther); };
    if (pipeline_.committing()) apply({ModelAction::Kind::finish, pattern});
    if (pipeline_.mode() == PipelineMode::pausing || pipeline_.mode() == PipelineMode::paused)
      apply({ModelAction::Kind::resume, 0});
    for (int i = 0; i < 200; ++i) {
      Selection next = select_next(pipeline_, options);
      ASSERT_FALSE(next.reason.empty());
      switch (next.action) {
        case Selection::Action::admit:
          apply({ModelAction::Kind::admit});
          break;
        case Selection::Action::preempt:
          ASSERT_TRUE(apply({ModelAction::Kind::preempt}));
          break;
        case Selection::Action::sample:
          apply({ModelAction::Kind::sample});
          break;
        case Selection::Action::start_commit:
          ASSERT_TRUE(apply({ModelAction::Kind::start}));
          ASSERT_TRUE(apply({ModelAction::Kind::finish, pattern}));
          break;
        case Selection::Action::launch: {
          Rules::Flight flight{.prefill = next.step.kind == StepKind::prefill};
          for (const RowPlan& row : next.step.rows)
            flight.rows.push_back({row.request, rules_.clients.at(row.request).launched() ? 0 : row.tokens,
                                   static_cast<int64_t>(row.drafts.size())});
          ASSERT_TRUE(apply({ModelAction::Kind::launch, 0, flight}));
          break;
        }
        case Selection::Action::idle:
          for (const auto& [id, client] : rules_.clients) EXPECT_EQ(client.resolved, 1) << "request " << id;
          EXPECT_EQ(pipeline_.pool().owned_pages(), 0);
          EXPECT_TRUE(pipeline_.is_drained());
          return;
      }
    }
    FAIL() << "the scheduler does not come to an end";
  }

 private:
  using Stage = Rules::Flight::Stage;

  // What request number `id` asks for. The second is constrained; the third begins like the first.
  RequestSpec spec_of(int64_t id) const {
    if (id % 3 == 1) return {.prompt = {1, 2}, .max_tokens = 3 + shape_.drafts, .stop_ids = {kEnd}};
    if (id % 3 == 2) return {.prompt = {5, 6, 7}, .max_tokens = 9, .stop_ids = {kEnd}, .constrained = true};
    return {.prompt = {1, 2}, .max_tokens = 2, .stop_ids = {kEnd}};
  }

  static constexpr int64_t kPatterns = 4, kDraftPatterns = 4;

  // What is chosen after the row's token (`place` 0) and after each of its drafts.
  static int32_t result(int64_t pattern, size_t row, int64_t place) {
    switch (pattern) {
      case 1:
        return row == 0 ? kEnd : kOther;
      case 2:
        return kEnd;
      case 3:
        return row == 0 ? kNaN : kOther;
      case 4:  // no draft is right, and what is after them counts for nothing
        return place == 0 ? kUndrafted : kEnd;
      case 5:  // one is right
        return place == 0 ? kOther : place == 1 ? kUndrafted : kNaN;
      case 6:
        return place == 1 ? kEnd : kOther;
      case 7:
        return place == 1 ? kNaN : kOther;
      default:
        return kOther;
    }
  }

  bool transition(const ModelAction& action) {
    switch (action.kind) {
      case ModelAction::Kind::submit:
        return pipeline_.submit(spec_of(static_cast<int64_t>(rules_.clients.size()))).id.has_value();
      case ModelAction::Kind::cancel:
        return pipeline_.cancel(action.argument);
      case ModelAction::Kind::admit:
        return pipeline_.admit();
      case ModelAction::Kind::launch:
        return pipeline_.launch(plan_of(action.flight)), true;
      case ModelAction::Kind::revoke:
        return pipeline_.revoke(), true;
      case ModelAction::Kind::sample:
        return pipeline_.sample(pipeline_.masks_needed().value_or(std::vector<MaskKey>{})), true;
      case ModelAction::Kind::start:
        return pipeline_.start_commit(), true;
      case ModelAction::Kind::finish: {
        std::vector<RowResult> results;
        if (pipeline_.committing())
          for (size_t i = 0; i < pipeline_.committing()->plan.rows.size(); ++i)
            results.push_back(results_of(pipeline_.committing()->plan.rows[i], action.argument, i));
        return pipeline_.finish_commit(results), true;
      }
      case ModelAction::Kind::pause:
        return pipeline_.pause(), true;
      case ModelAction::Kind::resume:
        return pipeline_.resume(static_cast<PipelineState::Rebuilt>(action.argument)), true;
      case ModelAction::Kind::fail:
        return pipeline_.fail("lost"), true;
      case ModelAction::Kind::preempt:
        return pipeline_.preempt(), true;
    }
    return false;
  }

  static RowResult results_of(const RowPlan& row, int64_t pattern, size_t i) {
    RowResult first{.token = result(pattern, i, 0)};
    for (int64_t place = 1; place < row.chosen(); ++place)
      first.behind_drafts.push_back({.token = result(pattern, i, place)});
    return first;
  }

  StepPlan plan_of(const Rules::Flight& flight) const {
    StepPlan plan{.kind = flight.prefill ? StepKind::prefill : StepKind::decode};
    for (const auto& [id, tokens, drafts, chooses] : flight.rows) {
      const Request* r = pipeline_.find(id);
      plan.rows.push_back({id, r ? r->computed() : 0, std::max<int64_t>(1, tokens) + drafts,
                           tokens == 0 || (r && tokens == r->prompt_left()), r ? r->next_output() : 0,
                           std::vector(static_cast<size_t>(drafts), kOther)});
    }
    return plan;
  }

  // The same transition by the rules, before the pipeline makes it; whether they allow it.
  bool follow(const ModelAction& action) {
    Rules& m = rules_;
    switch (action.kind) {
      case ModelAction::Kind::submit: {
        if (m.mode == PipelineMode::failed) return false;
        const auto id = static_cast<RequestId>(m.clients.size()) + 1;
        const RequestSpec spec = spec_of(id);
        const auto prompt = static_cast<int64_t>(spec.prompt.size());
        if (waiting() >= 4) return false;  // more where some were preempted
        m.clients[id] = {std::min(spec.max_tokens, 7 - prompt), prompt, spec.constrained};
        return true;
      }
      case ModelAction::Kind::cancel: {
        Rules::Client& c = m.clients.at(action.argument);
        return !c.resolved && (c.resolved = 1);
      }
      case ModelAction::Kind::admit: {  // pages are the pool's matter
        if (m.mode != PipelineMode::running || !pipeline_.why_not_admit().empty()) return false;
        for (auto& [id, c] : m.clients)
          if (!c.admitted && !c.resolved) {
            const PipelineState trial = [&] {
              PipelineState copy = pipeline_;
              copy.admit();
              return copy;
            }();
            c.admitted = true;
            c.prompt_launched = trial.find(id)->computed();  // found in the prefix cache
            return true;
          }
        return false;
      }
      case ModelAction::Kind::launch:
        if (!m.may_launch(action.flight)) return false;
        if (pipeline_.pages_short(plan_of(action.flight)) > 0) return false;
        m.flights.push_back(action.flight);
        for (Rules::Flight::Row& row : m.flights.back().rows) {
          m.clients[row.id].prompt_launched += row.tokens;
          row.chooses = m.clients[row.id].launched();
        }
        return true;
      case ModelAction::Kind::revoke:
        if (!m.forward()) return false;
        for (const Rules::Flight::Row& row : m.flights.back().rows) m.clients[row.id].prompt_launched -= row.tokens;
        m.flights.pop_back();
        m.settle();
        return true;
      case ModelAction::Kind::sample:
        if (!m.may_sample()) return false;
        m.flights.back().stage = Stage::sampled;
        return true;
      case ModelAction::Kind::start:
        if (m.committing() || !m.sampled()) return false;
        m.flights.front().stage = Stage::committing;
        return true;
      case ModelAction::Kind::finish:
        if (!m.committing()) return false;
        commit(m.flights.front(), action.argument);
        m.flights.pop_front();
        m.settle();
        return true;
      case ModelAction::Kind::pause:
        if (m.mode != PipelineMode::running) return false;
        m.mode = PipelineMode::pausing;
        m.settle();
        return true;
      case ModelAction::Kind::resume:
        if (m.mode != PipelineMode::paused && (m.mode != PipelineMode::pausing || action.argument != 0)) return false;
        m.mode = PipelineMode::running;
        return true;
      case ModelAction::Kind::fail:
        m.mode = PipelineMode::failed;
        m.flights.clear();
        for (auto& [id, c] : m.clients) c.resolved = 1;
        return true;
      case ModelAction::Kind::preempt: {
        if (m.mode != PipelineMode::running || shape_.reserve == Reserve::all) return false;
        // Requests submitted later were admitted later, the second time too.
        for (auto last = m.clients.rbegin(); last != m.clients.rend(); ++last) {
          auto& [id, c] = *last;
          if (!c.admitted || c.resolved) continue;
          if (m.flying(id) > 0) return false;
          c.admitted = c.decodes = false;
          c.prompt_launched = 0;
          c.prompt = static_cast<int64_t>(spec_of(id).prompt.size() + c.outputs.size());
          return true;
        }
        return false;
      }
    }
    return false;
  }

  void commit(const Rules::Flight& flight, int64_t pattern) {
    for (size_t i = 0; i < flight.rows.size(); ++i) {
      const auto& [id, tokens, drafts, chooses] = flight.rows[i];
      Rules::Client& c = rules_.clients.at(id);
      if (chooses) c.decodes = true;
      if (c.resolved || !chooses) continue;
      for (int64_t place = 0; place <= drafts && !c.resolved; ++place) {
        const int32_t token = result(pattern, i, place);
        if (token != kNaN) c.outputs.push_back(token);
        if (token == kNaN || token == kEnd || static_cast<int64_t>(c.outputs.size()) == c.most) c.resolved = 1;
        if (token != kOther) break;
      }
    }
  }

  int64_t waiting() const {
    int64_t count = 0;
    for (const auto& [id, c] : rules_.clients) count += !c.admitted && !c.resolved;
    return count;
  }

  void compare() {
    for (Resolution& resolution : pipeline_.take_resolutions()) {
      EXPECT_EQ(++told_[resolution.request], 1) << "request " << resolution.request << " was resolved again";
      EXPECT_EQ(resolution.outputs, rules_.clients.at(resolution.request).outputs);
    }
    EXPECT_EQ(pipeline_.mode(), rules_.mode);
    EXPECT_EQ(pipeline_.in_flight(), static_cast<int>(rules_.flights.size()));
    for (const auto& [id, c] : rules_.clients) {
      EXPECT_EQ(told_[id], c.resolved) << "request " << id;
      const Request* r = pipeline_.find(id);
      EXPECT_EQ(r != nullptr, !c.resolved || rules_.flying(id) > 0) << "request " << id;
      if (!r) continue;
      EXPECT_EQ(r->in_flight(), rules_.flying(id));
      EXPECT_EQ(r->outputs(), c.outputs);
      if (c.resolved || !c.decodes) continue;
      // Keys and values of all but the last token stand in its pages, and those of rows in flight are going to.
      const auto kept = static_cast<int64_t>(r->spec().prompt.size() + c.outputs.size()) - 1;
      const int64_t written = kept + rules_.flying(id) + rules_.drafting(id);
      EXPECT_EQ(pipeline_.pool().known(r->sequence()), kept) << "request " << id;
      EXPECT_EQ(r->computed(), written) << "request " << id;
      EXPECT_GE(2 * static_cast<int64_t>(pipeline_.pool().table(r->sequence()).size()), written) << "request " << id;
    }
  }

  Shape shape_;
  PipelineState pipeline_;
  Rules rules_;
  std::map<RequestId, int> told_;
  std::string key_;
};

// Visits every state that `depth` transitions can reach, and from each lets the scheduler bring everything to an end.
// Returns how many there are.
int64_t explore(const World& start, int depth) {
  std::unordered_set<std::string> seen{start.key()};
  std::vector<World> level{start};
  for (int d = 0; d < depth && !level.empty(); ++d) {
    std::vector<World> next;
    for (const World& world : level)
      for (const ModelAction& action : world.actions()) {
        World after = world;
        const bool allowed = after.apply(action);
        if (testing::Test::HasFailure()) return 0;
        if (!allowed || !seen.insert(after.key()).second) continue;
        World(after).finish_everything(static_cast<int64_t>(seen.size() % 2) * 2);
        if (testing::Test::HasFailure()) return 0;
        next.push_back(std::move(after));
      }
    level = std::move(next);
  }
  return static_cast<int64_t>(seen.size());
}

// No more states come long before 100 transitions.
TEST(PipelineModel, HoldsInEveryStateOfTwoRequests) { EXPECT_GT(explore(World({}), 100), 5000); }

TEST(PipelineModel, HoldsInEveryStateOfTwoRequestsWhosePromptsWaitForADrainedPipeline) {
  EXPECT_GT(explore(World({.schedule = Schedule::drained}), 100), 5000);
}

TEST(PipelineModel, HoldsInEveryStateOfTwoRequestsThatPreemptEachOther) {
  EXPECT_GT(explore(World({.pages = 4, .reserve = Reserve::prompt}), 100), 5000);
}

TEST(PipelineModel, HoldsInEveryStateOfThreeRequestsUpToDepth12) {
  EXPECT_GT(explore(World({.requests = 3}), 12), 2000);
}

TEST(PipelineModel, HoldsInEveryStateOfOneRequestWithDrafts) {
  EXPECT_GT(explore(World({.requests = 1, .pages = 4, .reserve = Reserve::prompt, .drafts = 2}), 100), 1000);
}

// The second is constrained, and has none.
TEST(PipelineModel, HoldsWithDraftsOfOneOfTwoRequestsUpToDepth14) {
  EXPECT_GT(explore(World({.requests = 2, .pages = 4, .reserve = Reserve::prompt, .drafts = 2}), 14), 1000);
}

// Returns how many requests were resolved.
int64_t walk(int walks, int steps, int64_t drafts) {
  int64_t resolved = 0;
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(walks); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    World world({.requests = 12,
                 .pages = 9,
                 .sequences = 4,
                 .reserve = seed % 2 ? Reserve::prompt : Reserve::all,
                 .drafts = drafts});
    for (int i = 0; i < steps; ++i) {
      const std::vector<ModelAction> actions = world.actions();
      const ModelAction& action = actions[random() % actions.size()];
      const bool is_rare = action.kind == ModelAction::Kind::fail || action.kind == ModelAction::Kind::cancel;
      if (is_rare && random() % 16 != 0) continue;
      world.apply(action);
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << "step " << i;
        return resolved;
      }
    }
    // With drafts also steps in which none or one is right.
    world.finish_everything(drafts > 0 && seed % 3 > 0 ? 3 + seed % 3 : 0);
    for (const auto& [id, client] : world.rules().clients) resolved += client.resolved;
  }
  return resolved;
}

TEST(PipelineModel, HoldsInLongRandomWalksOfManyRequests) { EXPECT_GT(walk(600, 500, 0), 600 * 4); }

TEST(PipelineModel, HoldsInLongRandomWalksOfManyRequestsWithDrafts) { EXPECT_GT(walk(120, 500, 2), 120 * 4); }

}  // namespace
}  // namespace nodewright
