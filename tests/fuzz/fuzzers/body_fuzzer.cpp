// The body of a call, and behind a zero byte bytes that say what its outputs choose. Both endpoints take it as a call
// or refuse it as a 400 or 404 with a message, within the work that its bytes and its structure may take; a call's
// outputs, told as the engine tells them, become valid JSON and events that end with [DONE].
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "models/config/model_config.h"
#include "serve/api/openai_api.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/meter.h"
#include "tests/fuzz/script.h"

using namespace nodewright;

namespace {

constexpr int64_t kMostTokens = 40;  // of an output
constexpr size_t kMostOutputs = 6;   // of a call that are run; the engine would run all
// A byte of a body is read, tokenized and searched for in the outputs; the one expression of a call is read
// twice, compiled, and its first mask is made.
constexpr uint64_t kMostUnitsOfByte = 1000, kMostUnitsOfStructure = 40'000'000;
constexpr uint64_t kMostUnitsOfMask = 64'000'000;  // as the engine allows for a step

// models/demo, named by $NODEWRIGHT_SOURCE_DIR or below the working folder: fuzzers and replays run in the root.
struct Demo {
  std::filesystem::path folder = [] {
    const char* named = std::getenv("NODEWRIGHT_SOURCE_DIR");
    return std::filesystem::path(named != nullptr && *named != '\0' ? named : ".") / "models/demo";
  }();
  std::optional<Tokenizer> tokenizer = Tokenizer::from_file(folder / "tokenizer.json");
  ModelConfig config = read_model_config(folder);
  OpenAiApi api{ServedModel{config, tokenizer, folder, {"demo"}, 1024, {.model = folder}, 1700000000}};
};

TokenLogprobs scored(int32_t token, int64_t output, int top) {
  TokenLogprobs one{.output = output, .token = token, .logprob = -0.5f * static_cast<float>(output + 1)};
  for (int i = 0; i < top; ++i) one.top.emplace_back(i, one.logprob - static_cast<float>(i));
  return one;
}

// One output as the engine's loop has it.
struct Output {
  AskedOutput asked;
  const RequestSpec& spec;
  int index;
  bool first_of_prompt;
  std::vector<int32_t> tokens = {};
  size_t told = 0;  // bytes of a text with stop strings
  bool has_begun = false, has_ended = false;
};

int32_t chosen(fuzz::Script& script, const Output& output, int64_t vocab) {
  int32_t token = static_cast<int32_t>(script.below(static_cast<uint32_t>(vocab)));
  if (script.below(24) == 0 && !output.spec.stop_ids.empty()) token = output.spec.stop_ids[0];
  if (!output.asked.choice.options.allow) return token;
  std::vector<uint32_t> allowed(static_cast<size_t>(vocab + 31) / 32);
  fuzz::metered("a mask", {kMostUnitsOfMask, static_cast<uint64_t>(vocab)},
                [&] { return output.asked.choice.options.allow(output.tokens, allowed), true; });
  for (int64_t i = 0; i < vocab; ++i) {
    const auto candidate = static_cast<int32_t>((token + i) % vocab);
    if ((allowed[static_cast<size_t>(candidate) / 32] >> (candidate % 32) & 1) != 0) return candidate;
  }
  fuzz::require(false, "a grammar allows a token until its text ends");
  return -1;
}

// What a step gives the output.
OutputUpdate step(fuzz::Script& script, Output& output, int64_t vocab) {
  const ChoiceOptions& options = output.asked.choice.options;
  OutputUpdate update{.index = output.index};
  const auto& prompt = output.spec.prompt;
  for (size_t i = 1; options.prompt_logprobs >= 0 && output.first_of_prompt && !output.has_begun && i < prompt.size();
       ++i)
    update.prompt_logprobs.push_back(scored(prompt[i], static_cast<int64_t>(i), options.prompt_logprobs));
  output.has_begun = true;
  std::optional<EndReason> reason;
  if (output.spec.max_tokens == 0) reason = EndReason::length;
  for (uint32_t n = 1 + script.below(2); n > 0 && !reason; --n) {
    const int32_t token = chosen(script, output, vocab);
    output.tokens.push_back(token);
    update.tokens.push_back(token);
    if (options.logprobs >= 0)
      update.logprobs.push_back(scored(token, std::ssize(output.tokens) - 1, options.logprobs));
    if (std::ranges::count(output.spec.stop_ids, token) > 0)
      reason = EndReason::stop_id;
    else if (options.ends)
      reason = options.ends(token);
    if (!reason && std::ssize(output.tokens) >= std::min(kMostTokens, output.spec.max_tokens))
      reason = EndReason::length;
  }
  if (const auto& stops = output.asked.choice.stops) {
    if (reason) stops->finish(), update.stop_string = stops->matched();
    update.text = stops->text().substr(output.told);
    output.told += update.text.size();
  }
  if (!reason && script.below(200) == 0) reason = script.below(2) == 0 ? EndReason::failed : EndReason::cancelled;
  if (!reason) return update;
  output.has_ended = true;
  update.end = Resolution{.reason = *reason, .outputs = output.tokens};
  return update;
}

bool is_json(std::string_view text) { return nlohmann::json::accept(text); }

void check_events(std::string_view events, bool complete) {
  bool done = false;
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    fuzz::require(end != std::string_view::npos && events.starts_with("data: "), "a stream is made of events");
    const std::string_view data = events.substr(6, end - 6);
    events.remove_prefix(end + 2);
    fuzz::require(!done, "nothing follows [DONE]");
    done = data == "[DONE]";
    fuzz::require(done || (is_json(data) && data.find('\n') == std::string_view::npos), "an event is a line of JSON");
  }
  fuzz::require(done == complete, "a stream ends with [DONE], and then alone");
}

// Steps all outputs in a random order until the call is done.
void run(ApiCall& call, std::string_view bytes, int64_t vocab) {
  std::vector<Submission> submissions = call.submissions();
  std::vector<Output> outputs;
  for (Submission& submission : submissions)
    for (size_t k = 0; k < submission.asked.outputs.size(); ++k)
      outputs.push_back({.asked = submission.asked.outputs[k],
                         .spec = submission.asked.spec,
                         .index = submission.first_index + static_cast<int>(k),
                         .first_of_prompt = k == 0});
  fuzz::require(!outputs.empty(), "a call has outputs");
  if (outputs.size() > kMostOutputs) return;
  fuzz::Script script(bytes);
  std::string events;
  while (!call.is_done()) {
    Output& output = outputs[script.below(static_cast<uint32_t>(outputs.size()))];
    if (!output.has_ended) events += call.update(step(script, output, vocab));
  }
  const std::string last = call.finish();
  if (call.streams())
    check_events(events + last, true);
  else
    fuzz::require(events.empty() && is_json(last), "a body is JSON");
  fuzz::require(call.status() == 200 || call.status() == 500 || call.status() == 503, "a call has a status");
}

template <class Make>
void expect_call_or_refusal(const Make& make, size_t size, std::string_view bytes, int64_t vocab) {
  std::unique_ptr<ApiCall> call;
  try {
    call = fuzz::metered("reading a call", {kMostUnitsOfStructure + kMostUnitsOfByte * size, size}, make);
  } catch (const ApiError& error) {
    fuzz::require(error.status() == 400 || error.status() == 404, "a refusal is a 400 or a 404");
    fuzz::require(!error.message().empty() && is_json(error_body(error)), "a refusal says why");
    return;
  }  // nothing else is caught: it ends the process
  run(*call, bytes, vocab);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Demo demo;
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  expect_call_or_refusal([&] { return demo.api.completions(parts.first, "x"); }, size, parts.second, demo.config.vocab);
  expect_call_or_refusal([&] { return demo.api.chat(parts.first, "x"); }, size, parts.second, demo.config.vocab);
  return 0;
}
