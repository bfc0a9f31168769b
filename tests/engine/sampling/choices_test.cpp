// Requests that ask for more than temperature, top-k and top-p: masks that come late and are never another token's,
// ends that the text brings, penalties, biases and log probabilities, beside requests that ask for nothing.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"
#include "tests/support/host_choice.h"
#include "tests/support/host_shaping.h"

namespace nodewright {
namespace {

using test::Decoder;

constexpr int kChoiceRows = 8;

EngineOptions choice_engine(int depth = kSlots) {
  return {.max_batch = kChoiceRows,
          .step_tokens = 8,
          .buckets = {kChoiceRows},
          .max_context = 192,
          .choices = true,
          .depth = depth};
}

void allow_token(std::span<uint32_t> mask, int32_t token) {
  mask[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
}

// The grammar (ab)*, which every mask of t used for t + 1 breaks. Records at which outputs it was asked.
constexpr int32_t kA = 1002, kB = 64;  // in the last word of the mask, and in one that begins with it
MaskFunction a_then_b(std::vector<size_t>* asked = nullptr) {
  return [asked](std::span<const int32_t> outputs, std::span<uint32_t> allowed) {
    if (asked) asked->push_back(outputs.size());
    allow_token(allowed, outputs.size() % 2 == 0 ? kA : kB);
  };
}

std::vector<int32_t> ab(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(i % 2 == 0 ? kA : kB);
  return tokens;
}

class EngineChoices : public testing::Test {
 protected:
  test::LoadedModel loaded{"llama/odd_sizes"};

  Engine engine(int depth = kSlots) { return {loaded.device, loaded.kernels, loaded.model, choice_engine(depth)}; }

  RequestSpec spec(uint64_t salt, int64_t max_tokens) {
    return {.prompt = test::some_tokens(3 + salt % 20, loaded.vocab(), salt), .max_tokens = max_tokens};
  }

  // Every end by request; `each` runs after every step of the loop. Ends are taken late, as others may do.
  static std::map<RequestId, Resolution> serve(
      Engine& engine, const std::function<void()>& each = [] {}) {
    do each();
    while (engine.advance());
    std::map<RequestId, Resolution> ended;
    for (Resolution& end : engine.take_resolutions()) EXPECT_TRUE(ended.emplace(end.request, end).second);
    EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
    return ended;
  }
};

TEST_F(EngineChoices, KeepAGrammarAtEveryStepInMixedBatchesWithPausesAndCancellations) {
  for (const int depth : {1, kSlots}) {
    Engine served = engine(depth);
    std::map<RequestId, std::vector<size_t>> asked;
    std::map<RequestId, int64_t> constrained;
    std::vector<RequestId> ids;
    for (uint64_t i = 0; i < 12; ++i) {
      const auto length = static_cast<int64_t>(1 + i * 5 % 9);
      const Sampling sampling{.temperature = i % 3 == 0 ? 0.0f : 1.0f, .top_k = 5, .seed = i};
      const bool is_constrained = i % 3 != 1;
      std::vector<size_t>& own = asked[static_cast<RequestId>(i + 1)];
      const RequestId id =
          served.submit(spec(i, length), sampling, {.allow = is_constrained ? a_then_b(&own) : MaskFunction()})
              .id.value();
      ids.push_back(id);
      if (is_constrained) constrained[id] = length;
    }
    int turn = 0;
    bool cancelled = false;
    const auto ended = serve(served, [&] {
      ++turn;
      // With a row in flight that waits for its mask: a zombie, whose mask nobody is asked for.
      const Request* doomed = served.pipeline().find(ids[2]);
      if (!cancelled && doomed && doomed->outputs().size() == 1 && served.pipeline().forward() &&
          doomed->in_flight() == 1)
        cancelled = served.cancel(ids[2]);
      if (turn % 7 == 0 && served.pipeline().mode() == PipelineMode::running) served.pause();
      if (served.pipeline().mode() == PipelineMode::paused) {
        EXPECT_TRUE(served.pipeline().is_drained()) << "a row that waited for its mask is committed before";
        served.resume();
      }
      served.pipeline().check();
    });
    ASSERT_EQ(ended.size(), ids.size());
    EXPECT_TRUE(cancelled);
    for (const auto& [id, length] : constrained) {
      const Resolution& end = ended.at(id);
      EXPECT_EQ(end.outputs, ab(end.outputs.size())) << "request " << id;
      EXPECT_EQ(end.reason, id == ids[2] ? EndReason::cancelled : EndReason::length) << end.message;
      EXPECT_EQ(static_cast<int64_t>(end.outputs.size()), id == ids[2] ? 1 : length);
      EXPECT_EQ(asked[id].size(), end.outputs.size()) << "asked once for each output";
      for (size_t i = 0; i < asked[id].size(); ++i) EXPECT_EQ(asked[id][i], i);
    }
  }
}

TEST_F(EngineChoices, FailClosedAndAlone) {
  Engine served = engine();
  const auto deny = [](std::span<const int32_t> outputs, std::span<uint32_t> allowed) {
    if (outputs.size() < 2) allow_token(allowed, 7);
  };
  const auto raise = [](std::span<const int32_t> outputs, std::span<uint32_t> allowed) {
    allow_token(allowed, 8);
    if (outputs.size() == 3) throw std::runtime_error("the grammar is lost");
  };
  const RequestId beside = served.submit(spec(1, 8)).id.value();
  const RequestId denied = served.submit(spec(2, 8), {}, {.allow = deny}).id.value();
  const RequestId raised = served.submit(spec(3, 8), {}, {.allow = raise}).id.value();
  const RequestId kept = served.submit(spec(4, 8), {}, {.allow = a_then_b()}).id.value();
  const RequestId forbidden =
      served.submit(spec(5, 8), {}, {.allow = a_then_b(), .biases = {{kB, -INFINITY}}}).id.value();
  const RequestId ending = served
                               .submit(spec(6, 8), {}, {.ends = [n = 0](int32_t) mutable -> std::optional<EndReason> {
                                         if (++n == 2) throw std::runtime_error("the text is lost");
                                         return std::nullopt;
                                       }})
                               .id.value();
  auto ended = serve(served);
  EXPECT_EQ(ended.at(beside).reason, EndReason::length);
  EXPECT_EQ(ended.at(kept).outputs, ab(8));
  EXPECT_EQ(ended.at(denied).outputs, (std::vector<int32_t>{7, 7}));
  expect_words(ended.at(denied).message, {"output 2", "deny every token"});
  EXPECT_EQ(ended.at(raised).outputs, (std::vector<int32_t>{8, 8, 8}));
  expect_words(ended.at(raised).message, {"output 3", "the grammar is lost"});
  EXPECT_EQ(ended.at(forbidden).outputs, ab(1));
  expect_words(ended.at(forbidden).message, {"output 1", "deny every token"});
  EXPECT_EQ(ended.at(ending).outputs.size(), 1u);
  expect_words(ended.at(ending).message, {"output 1", "the text is lost"});
  for (const RequestId id : {denied, raised, forbidden, ending}) EXPECT_EQ(ended.at(id).reason, EndReason::failed);
  for (const RequestId id : {denied, forbidden}) EXPECT_TRUE(ended.at(id).by_request);
  for (const RequestId id : {raised, ending}) EXPECT_FALSE(ended.at(id).by_request);
  EXPECT_EQ(served.pipeline().mode(), PipelineMode::running);
}

// Biases that leave the logits no say: the first of them is chosen unless it is banned, then the second, and so on.
TEST_F(EngineChoices, BanTheLastTokenOfABadSequenceExactlyBehindItsBeginning) {
  const std::vector<TokenBias> preferred = {{7, 100}, {11, 70}, {13, 40}};
  const struct {
    std::vector<int32_t> prompt;
    std::vector<std::vector<int32_t>> bad;
    std::vector<int32_t> outputs;
  } cases[] = {{{1, 2}, {}, {7, 7, 7, 7, 7, 7, 7}},
               {{1, 2}, {{7}}, {11, 11, 11, 11, 11, 11, 11}},
               {{1, 2}, {{7, 7, 7}}, {7, 7, 11, 7, 7, 11, 7}},
               {{1, 7}, {{7, 7}, {7, 11}}, {7, 13, 7, 13, 7, 13, 7}},  // the prompt does not count
               {{1, 2}, {{7, 7}, {7, 11, 7, 11}}, {7, 11, 7, 13, 7, 11, 7}},
               {{1, 2}, {{11, 7}, {7, 7, 7, 7}, {12, 7}, {7, 12}}, {7, 7, 7, 11, 11, 11, 11}}};
  for (const int depth : {1, kSlots}) {
    Engine served = engine(depth);
    std::map<RequestId, size_t> number;
    for (size_t i = 0; i < std::size(cases); ++i) {
      const auto& [prompt, bad, outputs] = cases[i];
      ChoiceOptions choice{.biases = preferred, .bad_sequences = bad};
      number[served.submit({.prompt = prompt, .max_tokens = 7}, {}, std::move(choice)).id.value()] = i;
    }
    for (const auto& [id, end] : serve(served)) EXPECT_EQ(end.outputs, cases[number.at(id)].outputs) << number.at(id);
  }
}

TEST_F(EngineChoices, KeepBadSequencesOutOfWhatTheyWouldHaveChosenAloneAndInCompany) {
  Engine served = engine();
  struct Job {
    RequestSpec spec;
    Sampling sampling;
    std::vector<int32_t> bad, before, outputs;  // what is banned, the tokens before it first came, and then all
  };
  std::vector<Job> jobs;
  const auto submit = [&](const Job& job) {
    ChoiceOptions choice;
    if (!job.bad.empty()) choice.bad_sequences = {job.bad};
    return served.submit(job.spec, job.sampling, choice).id.value();
  };
  for (uint64_t i = 0; i < 6; ++i) {
    Job job{spec(60 + i, 16), {.temperature = i % 2 == 0 ? 0.0f : 1.0f, .top_k = 6, .seed = i}, {}, {}, {}};
    submit(job);
    const std::vector<int32_t> free = serve(served).begin()->second.outputs;
    const auto from = free.begin() + 5 + static_cast<int64_t>(i % 3), to = from + 2 + static_cast<int64_t>(i % 2);
    job.bad.assign(from, to);
    const auto first = std::ranges::search(free, job.bad).begin();
    job.before.assign(free.begin(), first + std::ssize(job.bad) - 1);
    submit(job);
    job.outputs = serve(served).begin()->second.outputs;
    ASSERT_EQ(job.outputs.size(), free.size());
    EXPECT_TRUE(std::ranges::search(job.outputs, job.bad).empty()) << i;
    EXPECT_TRUE(std::equal(job.before.begin(), job.before.end(), job.outputs.begin())) << i;
    EXPECT_NE(job.outputs[job.before.size()], job.bad.back()) << i;
    jobs.push_back(std::move(job));
  }
  std::map<RequestId, const Job*> of;
  for (const Job& job : jobs) of[submit(job)] = &job;
  for (uint64_t i = 0; i < 2; ++i) served.submit(spec(80 + i, 12));
  for (const auto& [id, end] : serve(served))
    EXPECT_TRUE(!of.contains(id) || end.outputs == of.at(id)->outputs) << "request " << id;
}

TEST_F(EngineChoices, FailWhereTheLogitsHoldANaNAsEveryRequestDoes) {
  Engine served = engine();
  const Weight<bf16> gain = loaded.model.weights().final_norm().gain;
  fill_device(loaded.device, gain.address(), std::byte{0xff}, gain.bytes(), "final norm");
  served.submit(spec(1, 8));
  served.submit(spec(2, 8), {.temperature = 1}, {.logprobs = 2});
  served.submit(spec(3, 8), {}, {.allow = a_then_b()});
  const auto ended = serve(served);
  EXPECT_EQ(ended.size(), 3u);
  for (const auto& [id, end] : ended) {
    EXPECT_EQ(end.reason, EndReason::failed);
    expect_words(end.message, {"output 0", "NaN"});
  }
  EXPECT_TRUE(served.take_logprobs().empty());
  EXPECT_EQ(served.pipeline().mode(), PipelineMode::running);
}

TEST_F(EngineChoices, EndWhereTheTextSaysSo) {
  Engine served = engine();
  const auto after = [](int count, EndReason reason) {
    return [count, reason, seen = 0](int32_t) mutable -> std::optional<EndReason> {
      return ++seen == count ? std::optional(reason) : std::nullopt;
    };
  };
  const std::vector<int32_t> greedy = [&] {
    served.submit(spec(1, 8));
    return serve(served).begin()->second.outputs;
  }();
  const auto end_of = [&](RequestSpec request, EndFunction ends) {
    served.submit(std::move(request), {}, {.ends = std::move(ends)});
    const Resolution end = serve(served).begin()->second;
    return std::pair(end.reason, end.outputs.size());
  };
  EXPECT_EQ(end_of(spec(1, 8), after(3, EndReason::stop_string)), std::pair(EndReason::stop_string, size_t{3}));
  EXPECT_EQ(end_of(spec(1, 8), after(8, EndReason::complete)), std::pair(EndReason::complete, size_t{8}));
  EXPECT_EQ(end_of(spec(1, 4), after(5, EndReason::stop_string)), std::pair(EndReason::length, size_t{4}));
  RequestSpec stops = spec(1, 8);
  stops.stop_ids = {greedy[4]};
  const auto first = static_cast<size_t>(std::ranges::find(greedy, greedy[4]) - greedy.begin());
  const auto not_the_stop_id = [&](int32_t token) -> std::optional<EndReason> {
    if (token == stops.stop_ids[0]) throw std::runtime_error("a stop id is no part of the text");
    return std::nullopt;
  };
  EXPECT_EQ(end_of(stops, not_the_stop_id), std::pair(EndReason::stop_id, first + 1));
}

// Each request's tokens follow from its history by the reference: the logits of a Decoder that is fed what the engine
// chose, shaped and chosen from on the host. Where the best two are within the rounding of fp32, either is right.
TEST_F(EngineChoices, FollowTheReferenceInTheOrderOfSampling) {
  Decoder decoder = loaded.decoder(
      {.bucket = kChoiceRows, .prefill_rows = kChoiceRows, .max_context = 192, .sequences = 1, .keep_logits = true});
  const auto vocab = static_cast<int32_t>(loaded.vocab());
  struct Job {
    RequestSpec spec;
    Sampling sampling;
    ChoiceOptions choice;
  };
  std::vector<Job> jobs;
  const auto add = [&](Sampling sampling, ChoiceOptions choice) {
    RequestSpec one = spec(40 + jobs.size(), 10);
    one.stop_ids = {7};
    jobs.push_back({one, sampling, std::move(choice)});
  };
  add({}, {.repetition_penalty = 1.5f, .presence_penalty = 1, .frequency_penalty = 0.5f, .logprobs = 3});
  add({.temperature = 0.9f, .seed = 3}, {.repetition_penalty = 4, .logprobs = 0});
  add({.temperature = 1.2f, .min_p = 0.05f, .top_k = 40, .top_p = 0.9f, .seed = 4}, {.frequency_penalty = 3});
  add({.temperature = 1.0f, .min_p = 0.3f, .seed = 5}, {.logprobs = 20});
  add({}, {.biases = {{7, 50}, {11, 40}}, .min_tokens = 4, .logprobs = 1});
  add({.temperature = 0.7f, .seed = 6},
      {.allow = [](auto, std::span<uint32_t> mask) { std::ranges::fill(mask.first(4), 0x0f0f0f0fu); },
       .biases = {{1, -INFINITY}, {2, 3}, {900, 100}},
       .presence_penalty = 2});
  const int32_t of_prompt = spec(40 + jobs.size(), 10).prompt[0];  // chosen at once if the prompt were not counted
  add({}, {.biases = {{of_prompt, 100}}, .repetition_penalty = 100});
  Engine served = engine();
  std::map<RequestId, const Job*> of;
  for (const Job& job : jobs) of[served.submit(job.spec, job.sampling, job.choice).id.value()] = &job;
  const auto ended = serve(served);
  std::map<std::pair<RequestId, int64_t>, TokenLogprobs> told;
  for (TokenLogprobs& one : served.take_logprobs()) told[{one.request, one.output}] = one;
  size_t compared = 0, asked = 0;
  for (const auto& [id, end] : ended) {
    const auto& [request, sampling, choice] = *of.at(id);
    ASSERT_NE(end.reason, EndReason::failed) << end.message;
    const std::vector<test::Logits> logits = test::forced_logits(decoder, loaded, request.prompt, end.outputs);
    for (size_t i = 0; i < end.outputs.size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i) + " of request " + std::to_string(id));
      test::HostShaping shaping{.prompt = request.prompt,
                                .outputs = {end.outputs.begin(), end.outputs.begin() + static_cast<int64_t>(i)},
                                .repetition = choice.repetition_penalty,
                                .presence = choice.presence_penalty,
                                .frequency = choice.frequency_penalty,
                                .min_p = sampling.min_p,
                                .temperature = sampling.temperature};
      if (choice.allow)
        for (int32_t t = 0; t < vocab; ++t) shaping.allowed.push_back(t < 128 && t % 8 < 4);
      for (const TokenBias& bias : choice.biases) shaping.biases[bias.token] += bias.bias;
      if (static_cast<int64_t>(i) < choice.min_tokens) shaping.biases[7] = -INFINITY;
      test::SampleRow row{.logits = {}, .temperature = sampling.temperature};
      for (const double v : test::shaped_on_host(logits[i], shaping)) row.logits.push_back(static_cast<float>(v));
      row.top_k = sampling.top_k, row.top_p = sampling.top_p, row.seed = sampling.seed.value_or(0);
      row.output_index = static_cast<int32_t>(i);
      const bool greedy = sampling.temperature == 0;
      const auto best = static_cast<int32_t>(std::ranges::max_element(row.logits) - row.logits.begin());
      const test::HostChoice expected = greedy ? test::HostChoice{best, 1} : test::host_choice(row);
      if (expected.margin > 1e-4) {
        EXPECT_EQ(end.outputs[i], expected.token);
        ++compared;
      }
      const auto found = told.find({id, static_cast<int64_t>(i)});
      ASSERT_EQ(found != told.end(), choice.logprobs >= 0);
      if (choice.logprobs < 0) continue;
      const std::vector<double> all = test::logprobs_on_host(logits[i]);
      EXPECT_EQ(found->second.token, end.outputs[i]);
      EXPECT_NEAR(found->second.logprob, all[static_cast<size_t>(end.outputs[i])], 1e-5);
      EXPECT_EQ(found->second.top.size(), static_cast<size_t>(choice.logprobs));
      for (const auto& [token, logprob] : found->second.top)
        EXPECT_NEAR(logprob, all[static_cast<size_t>(token)], 1e-5);
      ++asked;
    }
  }
  EXPECT_GE(compared, 45u);
  EXPECT_GE(asked, 30u);
  EXPECT_EQ(told.size(), asked);
}

// Requests with penalties come and go in the same sequences, are preempted, and see the graphs rebuilt: what an earlier
// one counted is gone, what they counted is not, and each gets what it gets alone.
TEST_F(EngineChoices, CountForEachRequestAnew) {
  Engine served = engine();
  const ChoiceOptions penalised{.repetition_penalty = 1.3f, .frequency_penalty = 2};
  const auto longer = [&](uint64_t salt) {  // the outputs need a second page
    return RequestSpec{.prompt = test::some_tokens(kPageTokens - 9 + salt, loaded.vocab(), salt), .max_tokens = 14};
  };
  const auto alone = [&](uint64_t salt) {
    served.submit(longer(salt), {}, penalised);
    return serve(served).begin()->second.outputs;
  };
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t salt = 0; salt < 5; ++salt) expected.push_back(alone(salt));
  EngineOptions few_pages = choice_engine();
  few_pages.pages = 5;
  few_pages.schedule = Schedule::drained;  // their outputs come together
  few_pages.reserve = Reserve::prompt;
  Engine crowded(loaded.device, loaded.kernels, loaded.model, few_pages);
  bool rebuilt = false;
  for (Engine* one : {&served, &crowded}) {
    std::map<RequestId, size_t> number;
    for (size_t salt = 0; salt < 5; ++salt) number[one->submit(longer(salt), {}, penalised).id.value()] = salt;
    int turn = 0;
    const auto ended = serve(*one, [&] {
      if (one == &crowded) return;
      if (++turn == 20) one->pause();
      if (one->pipeline().mode() != PipelineMode::paused) return;
      one->rebuild_graphs({.buckets = {kChoiceRows}});
      one->resume();
      rebuilt = true;
    });
    for (const auto& [id, end] : ended) EXPECT_EQ(end.outputs, expected[number.at(id)]) << "request " << id;
  }
  EXPECT_TRUE(rebuilt);
  EXPECT_GT(crowded.pipeline().preemptions(), 0);
}

TEST_F(EngineChoices, AreRefusedOutOfRangeAndWhereTheEngineHasNoRoom) {
  Engine served = engine();
  const auto reason = [&](ChoiceOptions choice) {
    return served.submit({.prompt = {1}}, {}, std::move(choice)).reason;
  };
  expect_words(reason({.biases = {{5000, 1}}}), {"token 5000", "1003"});
  expect_words(reason({.biases = {{5, 1}, {5, 2}}}), {"token 5", "two"});
  expect_words(reason({.biases = {{5, NAN}}}), {"bias", "token 5"});
  expect_words(reason({.min_tokens = -1}), {"min_tokens of -1"});
  expect_words(reason({.repetition_penalty = 0}), {"repetition_penalty of 0"});
  expect_words(reason({.presence_penalty = NAN}), {"presence_penalty"});
  expect_words(reason({.frequency_penalty = 1000}), {"frequency_penalty of 1000"});
  expect_words(reason({.logprobs = 21}), {"21", "0 to 20"});
  std::vector<TokenBias> many;
  for (int32_t i = 0; i < 257; ++i) many.push_back({i, 1});
  expect_words(reason({.biases = many}), {"257", "256"});
  many.resize(250);
  expect_words(reason({.biases = many, .bad_sequences = {7, {1, 2}}}), {"257", "256", "bad sequences"});
  expect_words(reason({.bad_sequences = {{1}, {}}}), {"bad sequence", "no tokens"});
  expect_words(reason({.bad_sequences = {{1, 1003}}}), {"token 1003", "bad sequence", "1003 tokens"});
  EngineOptions none = choice_engine();
  none.choices = false;
  Engine plain(loaded.device, loaded.kernels, loaded.model, none);
  expect_words(plain.submit({.prompt = {1}}, {}, {.logprobs = 1}).reason, {"no choices"});
}

// Every third driver call of building an engine with room for choices fails once in turn.
TEST(EngineChoicesOnCpuDriver, LeaveNothingWhereTheEngineCannotBeBuilt) {
  test::LoadedModel loaded("llama/odd_sizes", "cpu", Observe::yes);
  Interposer& interposer = *loaded.opened.interposer;
  (void)Engine(loaded.device, loaded.kernels, loaded.model, choice_engine());  // loads the kernels
  const std::string before = interposer.describe_live();
  uint64_t failed = 0;
  for (uint64_t call = 0;; call += 3) {
    const uint64_t injected = interposer.failures_injected();
    interposer.fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
    const std::string error =
        error_of([&] { (void)Engine(loaded.device, loaded.kernels, loaded.model, choice_engine()); });
    interposer.fail_none();
    EXPECT_EQ(interposer.describe_live(), before) << "call " << call;
    if (interposer.failures_injected() == injected) break;
    failed += !error.empty();  // a release that fails is no error
  }
  EXPECT_GT(failed, 30u);
}

// Every fourth driver call of serving fails once in turn: each request is resolved once, constrained ones too.
TEST(EngineChoicesOnCpuDriver, ResolveEveryRequestOnceWhicheverCallFails) {
  test::LoadedModel loaded("llama/odd_sizes", "cpu", Observe::yes);
  Interposer& interposer = *loaded.opened.interposer;
  (void)Engine(loaded.device, loaded.kernels, loaded.model, choice_engine());  // loads the kernels
  const std::string before = interposer.describe_live();
  uint64_t failed = 0;
  for (uint64_t call = 0;; call += 4) {
    {
      Engine engine(loaded.device, loaded.kernels, loaded.model, choice_engine());
      ASSERT_TRUE(engine.submit({.prompt = {1, 2}, .max_tokens = 4}, {}, {.allow = a_then_b()}).id);
      ASSERT_TRUE(engine.submit({.prompt = {3, 4, 5}, .max_tokens = 3}).id);
      ASSERT_TRUE(engine.submit({.prompt = {3, 4, 6}, .max_tokens = 3}, {}, {.presence_penalty = 1, .logprobs = 2}).id);
      const uint64_t injected = interposer.failures_injected();
      interposer.fail_call(call, CUDA_ERROR_ILLEGAL_ADDRESS);
      while (engine.advance()) engine.pipeline().check();
      interposer.fail_none();
      const std::vector<Resolution> ended = engine.take_resolutions();
      ASSERT_EQ(ended.size(), 3u) << "call " << call;
      EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
      if (interposer.failures_injected() == injected) {
        for (const Resolution& resolution : ended) EXPECT_EQ(resolution.reason, EndReason::length);
        break;
      }
      ++failed;
      EXPECT_EQ(engine.pipeline().mode(), PipelineMode::failed);
      EXPECT_EQ(ended.back().reason, EndReason::failed);
      expect_words(ended.back().message, {"cu"});
    }
    EXPECT_EQ(interposer.describe_live(), before) << "call " << call;
  }
  EXPECT_GT(failed, 8u);
}

}  // namespace
}  // namespace nodewright
