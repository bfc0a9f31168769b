// What the tests of the API have in place of a server: a model's folder behind an OpenAiApi, and outputs that choose
// tokens from a script as the engine's loop tells them. No network is computed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/config/model_config.h"
#include "serve/api/openai_api.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright::test {

using Json = nlohmann::ordered_json;

// The demo's config with a tokenizer and perhaps a chat template.
class ServedCase {
 public:
  explicit ServedCase(const std::filesystem::path& folder, int64_t max_model_len = 1024, AnswerParsers parsers = {},
                      Json template_args = Json::object())
      : tokenizer(Tokenizer::from_file(folder / "tokenizer.json")),
        config(config_for(*tokenizer)),
        api(ServedModel{config,
                        tokenizer,
                        folder,
                        {"demo", "other"},
                        max_model_len,
                        {.model = folder, .template_args = std::move(template_args), .parsers = parsers},
                        1700000000}) {}

  std::vector<int32_t> ids(std::string_view text) const { return tokenizer->encode(text, {.parse_special = true}); }

  std::optional<Tokenizer> tokenizer;
  ModelConfig config;
  OpenAiApi api;

 private:
  static ModelConfig config_for(const Tokenizer& tokenizer) {
    ModelConfig config = read_model_config(source_dir() / "models/demo");
    for (const char* end : {"<|im_end|>", "<|eot_id|>"})
      if (const auto id = tokenizer.token_to_id(end)) config.eos = {*id};
    return config;
  }
};

inline std::filesystem::path demo_folder() { return source_dir() / "models/demo"; }

// A folder with the tokenizer and the chat template of a golden: "qwen", "llama3".
inline void write_chat_model(const ScratchFolder& folder, const std::string& golden) {
  const std::filesystem::path goldens = source_dir() / "tests/golden";
  folder.write("tokenizer.json", read_text(goldens / "tokenizers" / golden / "tokenizer.json"));
  folder.write("tokenizer_config.json", R"({"bos_token":"<|begin_of_text|>","eos_token":"<|im_end|>"})");
  folder.write("chat_template.jinja", read_text(goldens / "chat" / golden / "chat_template.jinja"));
}

// The script of one output: its tokens, and how the updates come.
struct Script {
  std::vector<int32_t> tokens;
  size_t at_once = 1;  // tokens of an update: drafts that were right
  int64_t found = 0;   // tokens of the prompt in the cache
};

class FakeEngine {
 public:
  explicit FakeEngine(ApiCall& call) : call_(call), submissions_(call.submissions()) {}

  // Runs output `index`, the answer's next events. It ends by a stop id, a stop string, max_tokens or the script's end,
  // which counts as max_tokens.
  std::string run(int index, const Script& script) {
    const auto [submission, output] = place_of(index);
    RequestChoice& choice = submission->asked.outputs[output].choice;
    const RequestSpec& spec = submission->asked.spec;
    std::string events;
    OutputUpdate update{.index = index};
    Resolution end{.reason = EndReason::length, .found_tokens = script.found};
    size_t sent = 0;
    if (output == 0) update.prompt_logprobs = scored_prompt(spec.prompt, choice.options.prompt_logprobs);
    for (const int32_t token : script.tokens) {
      std::optional<EndReason> reason;
      if (std::ranges::count(spec.stop_ids, token) > 0)
        reason = EndReason::stop_id;
      else if (choice.options.ends)
        reason = choice.options.ends(token);
      end.outputs.push_back(token);
      update.tokens.push_back(token);
      if (choice.options.logprobs >= 0)
        update.logprobs.push_back(scored(token, std::ssize(end.outputs), choice.options.logprobs));
      const bool last = std::ssize(end.outputs) == std::min(std::ssize(script.tokens), spec.max_tokens);
      if (reason || last) {
        end.reason = reason.value_or(EndReason::length);
        if (choice.stops) choice.stops->finish(), update.stop_string = choice.stops->matched();
        update.end = end;
      }
      if (choice.stops) {
        update.text = choice.stops->text().substr(sent);
        if (update.tokens.size() == script.at_once || update.end) sent = choice.stops->text().size();
      }
      if (update.tokens.size() < script.at_once && !update.end) continue;
      events += call_.update(update);
      if (update.end) return events;
      update = {.index = index};
    }
    return events;
  }

  // Every output with the same script, and the end of the answer.
  std::string run_all(const Script& script) {
    std::string events;
    int index = 0;
    for (const Submission& submission : submissions_)
      for (size_t k = 0; k < submission.asked.outputs.size(); ++k) events += run(index++, script);
    EXPECT_TRUE(call_.is_done());
    return events + call_.finish();
  }

  const std::vector<Submission>& submissions() const { return submissions_; }

 private:
  std::pair<Submission*, size_t> place_of(int index) {
    for (Submission& one : submissions_)
      if (index >= one.first_index && index < one.first_index + std::ssize(one.asked.outputs))
        return {&one, static_cast<size_t>(index - one.first_index)};
    ADD_FAILURE() << "no output " << index;
    return {submissions_.data(), 0};
  }

  // The token at place n has -n/4, the next ids less and less.
  static TokenLogprobs scored(int32_t token, int64_t place, int top) {
    TokenLogprobs one{.output = place - 1, .token = token, .logprob = -0.25f * static_cast<float>(place)};
    for (int i = 0; i < top; ++i) one.top.emplace_back(token + i, one.logprob - static_cast<float>(i));
    return one;
  }
  static std::vector<TokenLogprobs> scored_prompt(const std::vector<int32_t>& prompt, int top) {
    std::vector<TokenLogprobs> all;
    for (size_t i = 1; top >= 0 && i < prompt.size(); ++i)
      all.push_back(scored(prompt[i], static_cast<int64_t>(i), top));
    return all;
  }

  ApiCall& call_;
  std::vector<Submission> submissions_;
};

// The data of each event.
inline std::vector<std::string> data_of(std::string_view events) {
  std::vector<std::string> data;
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << events;
    EXPECT_TRUE(events.starts_with("data: ")) << events;
    if (end == std::string_view::npos || !events.starts_with("data: ")) return data;
    data.emplace_back(events.substr(6, end - 6));
    EXPECT_EQ(data.back().find('\n'), std::string::npos);
    events.remove_prefix(end + 2);
  }
  return data;
}

// The chunks of a whole stream, which must end with [DONE].
inline std::vector<Json> chunks_of(std::string_view events) {
  std::vector<std::string> data = data_of(events);
  EXPECT_FALSE(data.empty());
  if (data.empty()) return {};
  EXPECT_EQ(data.back(), "[DONE]");
  data.pop_back();
  std::vector<Json> chunks;
  for (const std::string& one : data) chunks.push_back(Json::parse(one));
  return chunks;
}

// The error that `call` throws.
template <class Call>
ApiError error_of(const Call& call) {
  try {
    call();
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return ApiError(599, "nothing");
}

}  // namespace nodewright::test
