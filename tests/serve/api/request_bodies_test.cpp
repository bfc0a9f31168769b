// Bodies that cannot be, each refused with the name of its field, and those that can be in an unusual form.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/work_budget.h"
#include "tests/serve/api/fake_engine.h"

namespace nodewright::test {
namespace {

class RequestBodies : public testing::Test {
 protected:
  static void SetUpTestSuite() { served_ = new ServedCase(demo_folder()); }
  static void TearDownTestSuite() { delete std::exchange(served_, nullptr); }
  static ApiError completions_error(const std::string& body) {
    return error_of([&] { served_->api.completions(body); });
  }
  static ApiError chat_error(const std::string& body) {
    return error_of([&] { served_->api.chat(body); });
  }
  static Json prompt() { return {{"prompt", "Once"}}; }
  static Json messages() { return {{"messages", Json::array({{{"role", "user"}, {"content", "Hello"}}})}}; }
  static AskedRequest asked(const Json& more) {
    Json body = prompt();
    body.update(more);
    return std::move(served_->api.completions(body.dump())->submissions()[0].asked);
  }
  static ServedCase* served_;
};
ServedCase* RequestBodies::served_ = nullptr;

TEST_F(RequestBodies, ValuesOfTheWrongTypeAreNamedAtBothEndpoints) {
  const std::vector<std::string> flags{
      "stream", "echo", "ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "return_token_ids"};
  const std::vector<std::string> numbers{"max_tokens",
                                         "n",
                                         "temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "seed",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "repetition_penalty",
                                         "min_tokens",
                                         "prompt_logprobs",
                                         "truncate_prompt_tokens",
                                         "best_of"};
  const std::vector<std::string> others{
      "stop",           "logit_bias",      "stop_token_ids",     "bad_words", "allowed_token_ids",
      "stream_options", "response_format", "structured_outputs", "model",     "request_id"};
  const auto refused = [&](const std::string& field, const Json& value) {
    Json body = prompt();
    body[field] = value;
    const ApiError error = completions_error(body.dump());
    EXPECT_EQ(error.status(), 400) << field << " " << value;
    EXPECT_EQ(error.param(), field) << value << ": " << error.message();
    EXPECT_NE(error.message().find(field), std::string::npos) << error.message();
    body = messages();
    body[field] = value;
    EXPECT_EQ(chat_error(body.dump()).param(), field) << value;
  };
  for (const std::string& field : flags)
    for (const Json& value : {Json(5), Json("true"), Json::array(), Json::object()}) refused(field, value);
  for (const std::string& field : numbers)
    for (const Json& value : {Json("5"), Json(true), Json::array({1}), Json::object()}) refused(field, value);
  for (const std::string& field : others) refused(field, 5);
  for (const char* field : {"messages", "tools", "documents"}) {
    Json body = messages();
    body[field] = "no list";
    EXPECT_EQ(chat_error(body.dump()).param(), field);
  }
}

TEST_F(RequestBodies, ValuesOutOfRangeAreNamed) {
  const auto refused = [&](const std::string& field, const std::string& value) {
    const ApiError error = completions_error(R"({"prompt":"Once",")" + field + "\":" + value + "}");
    EXPECT_EQ(error.status(), 400) << field << value;
    EXPECT_EQ(error.param(), field) << value << ": " << error.message();
  };
  refused("temperature", "-1");
  refused("temperature", "1e300");
  refused("temperature", "1e999");
  refused("top_p", "1.5");
  refused("min_p", "-0.1");
  refused("top_k", "-2");
  refused("n", "0");
  refused("n", "1000000");
  refused("n", "1.5");
  refused("max_tokens", "0");
  refused("max_tokens", "-1");
  refused("max_tokens", "99999999999999999999999");
  refused("seed", "99999999999999999999999");
  refused("logprobs", "21");
  refused("logprobs", "true");
  refused("presence_penalty", "1e39");
  refused("presence_penalty", "101");
  refused("frequency_penalty", "-101");
  refused("repetition_penalty", "0");
  refused("min_tokens", "-1");
  refused("truncate_prompt_tokens", "0");
  refused("logit_bias", R"({"99999":1})");
  refused("logit_bias", R"({"5":"a"})");
  refused("logit_bias", R"({"five":1})");
  refused("logit_bias", R"({"5":1000})");
  refused("stop_token_ids", "[99999]");
  refused("allowed_token_ids", "[-1]");
  refused("allowed_token_ids", "[]");
  refused("stop", "[\"\"]");
  refused("stop", "[5]");
  refused("bad_words", "[\"\"]");
  refused("stream_options", R"({"include_usage":true})");
}

TEST_F(RequestBodies, MoreTokensAtLeastThanAtMostAreRefusedByBothNames) {
  const auto message = [&](const std::string& more) {
    const ApiError error = completions_error(R"({"prompt":"Once")" + more + "}");
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), "min_tokens");
    return error.message();
  };
  EXPECT_EQ(message(R"(,"min_tokens":6,"max_tokens":5)"), "min_tokens is 6, and max_tokens is 5");
  EXPECT_EQ(message(R"(,"min_tokens":17)"), "min_tokens is 17, and max_tokens is 16");  // its default
  EXPECT_EQ(message(R"(,"min_tokens":9,"max_completion_tokens":8)"), "min_tokens is 9, and max_completion_tokens is 8");
}

TEST_F(RequestBodies, PromptsThatCannotBeAreNamed) {
  for (const char* prompt : {"null", "[]", "{}", "5", "true", "[[]]", "[\"\", 5]", "[[\"a\"]]", "[5, \"a\"]", "[1.5]",
                             "[-1]", "[2048]", "[[1,2],[99999]]", "[null]", "[{}]"}) {
    const ApiError error = completions_error(std::string(R"({"prompt":)") + prompt + "}");
    EXPECT_EQ(error.status(), 400) << prompt;
    EXPECT_EQ(error.param(), "prompt") << prompt << ": " << error.message();
  }
  EXPECT_EQ(completions_error(R"({"prompt":"","add_special_tokens":false})").param(), "prompt");
  EXPECT_EQ(completions_error(R"({"model":"demo"})").param(), "prompt");
  Json body{{"prompt", Json::array()}, {"n", 128}};
  for (int i = 0; i < 100; ++i) body["prompt"].push_back("Once");
  EXPECT_EQ(completions_error(body.dump()).param(), "n");
}

TEST_F(RequestBodies, WhatIsNoJsonObjectIsRefused) {
  for (const std::string body : {"", " ", "[]", "5", "\"a\"", "null", "{", "{\"prompt\":}", "{\"prompt\":\"a\"} x",
                                 "{'prompt':'a'}", "{\"prompt\":\"\xff\"}", "{\"prompt\":\"\\ud800\"}", "nan"}) {
    EXPECT_EQ(completions_error(body).status(), 400) << body;
    EXPECT_EQ(chat_error(body).status(), 400) << body;
  }
  EXPECT_EQ(completions_error(std::string("{\"prompt\":\"a\"}\0", 15)).status(), 400);
  EXPECT_EQ(completions_error("{\"prompt\":\"\xff\"}").param(), "prompt");
}

TEST_F(RequestBodies, HostileFormsAreRefusedInTime) {
  const std::string deep(100000, '[');
  EXPECT_EQ(completions_error(R"({"prompt":)" + deep).param(), "prompt");
  EXPECT_EQ(completions_error(R"({"prompt":"a","tools":)" + deep + std::string(100000, ']') + "}").param(), "tools");
  std::string keys = R"({"prompt":"a","logit_bias":{)";
  for (int i = 0; i < 100000; ++i) keys += "\"" + std::to_string(i) + "\":1,";
  const ApiError many = completions_error(keys + R"("x":1}})");
  EXPECT_EQ(many.param(), "logit_bias");
  EXPECT_NE(many.message().find("more than 4096 keys"), std::string::npos) << many.message();
  const ApiError wide = completions_error(R"({"prompt":"a",)" + keys.substr(keys.find("\"0\"")) + R"("x":1})");
  EXPECT_EQ(wide.param(), "");
  EXPECT_EQ(wide.message(), "the body has more than 4096 keys");
  EXPECT_EQ(completions_error(R"({"prompt":"a","prompt":"b"})").param(), "prompt");
  const ApiError twice = completions_error(R"({"prompt":"a","logit_bias":{"5":1,"5":2}})");
  EXPECT_EQ(twice.param(), "logit_bias");
  EXPECT_NE(twice.message().find("\"5\" twice"), std::string::npos);
  Json body = prompt();
  body["structured_outputs"] = {{"json", R"({"type":)" + std::string(100000, '[')}};
  EXPECT_EQ(completions_error(body.dump()).param(), "structured_outputs");
  body["structured_outputs"] = {{"regex", std::string(100000, '(')}};
  EXPECT_EQ(completions_error(body.dump()).param(), "structured_outputs");
}

// The parser stops in the body, not in the field before: the message and `param` are the body's.
TEST_F(RequestBodies, ABodyThatIsNoJsonIsNotTheFaultOfItsLastField) {
  const auto expect = [](const std::string& body, const std::string& where, const std::string& param = "") {
    const ApiError error = completions_error(body);
    EXPECT_TRUE(error.message().starts_with("the body is not valid JSON at byte " + where)) << error.message();
    EXPECT_EQ(error.message().find("parse error"), std::string::npos) << "the place is named once: " << error.message();
    EXPECT_EQ(error.param(), param) << body;
  };
  expect("", "1: unexpected end of input");
  expect(R"({"prompt": "abc" x})", R"(18, near "prompt": invalid literal)");
  expect(R"({"prompt": "abc"}{})", R"(18, near "prompt": unexpected '{'; expected end of input)");
  expect(R"({"temperature": NaN})", R"(17, near "temperature": invalid literal)");
  expect(R"({"prompt": "\ud800"})", R"(19, near "prompt": invalid string: surrogate)", "prompt");
  expect(R"({"prompt": "a",})", R"(16, near "prompt": unexpected '}')");
}

// Small texts of JSON that make large values: what is made is counted, in values, before it is made.
TEST_F(RequestBodies, ABodyOfMoreValuesThanItsBytesPayForIsRefused) {
  const auto list_of = [](const std::string& one, int count) {
    std::string list = R"({"prompt":"a","x":[)";
    for (int i = 1; i < count; ++i) list += one + ",";
    return list + one + "]}";
  };
  for (const char* one : {"[]", "{}", "\"\"", "1e5", "1E400"}) {
    const ApiError error = completions_error(list_of(one, 1'000'100));
    EXPECT_EQ(error.param(), "x") << one;
  }
  const ApiError numbers = completions_error(list_of("0", 2'000'100));
  EXPECT_NE(numbers.message().find("more than 2000000 values"), std::string::npos) << numbers.message();
  WorkBudget budget(UINT64_MAX);
  EXPECT_EQ(completions_error(list_of("[]", 3'000'000)).param(), "x");
  EXPECT_LT(budget.spent(), 17'000'000u) << "it read on after the limit";
  EXPECT_NO_THROW(RequestBody::parse(list_of("[1,\"\"]", 400'000)));
}

TEST_F(RequestBodies, ParsingEndsWhereNobodyWantsTheBodyAnyMore) {
  std::string list = R"({"prompt":[0)";
  for (int i = 0; i < 500'000; ++i) list += ",0";
  const WorkBudget budget(UINT64_MAX, [] { return true; });
  EXPECT_THROW(RequestBody::parse(list + "]}"), WorkCancelled);
}

// Whatever stands in a field, a call comes of it or one ApiError that names this field.
TEST_F(RequestBodies, NoValueOfAFieldIsMoreThanAnErrorOfItsOwn) {
  const std::vector<std::string> values{"0",
                                        "-1",
                                        "1.5",
                                        "1e308",
                                        "-1e308",
                                        "18446744073709551615",
                                        "-9223372036854775808",
                                        "true",
                                        "false",
                                        "\"\"",
                                        "\"a\"",
                                        "\"\\u0000\"",
                                        "[]",
                                        "[[]]",
                                        "[[[]]]",
                                        "[null]",
                                        "[0]",
                                        "[-1]",
                                        "[1e308]",
                                        "[\"a\"]",
                                        "[\"\",5]",
                                        "[{}]",
                                        "[[5]]",
                                        "{}",
                                        R"({"a":1})",
                                        R"({"type":"json_schema"})",
                                        R"({"type":5})",
                                        R"({"json":{}})",
                                        R"({"json":5})",
                                        R"({"json":"{}"})",
                                        R"({"regex":"("})",
                                        R"({"choice":[[]]})",
                                        R"({"include_usage":5})",
                                        R"({"5":1e308})",
                                        R"({"-1":1})",
                                        R"({"5":[]})",
                                        R"([{"role":"user","content":{"a":1}}])",
                                        R"([{"role":"user","content":[[]]}])",
                                        R"([{"type":"function","function":{"name":"f","parameters":{"type":[]}}}])",
                                        R"({"type":"function","function":5})"};
  const std::vector<std::string> fields{"model",
                                        "n",
                                        "max_tokens",
                                        "max_completion_tokens",
                                        "stream",
                                        "stream_options",
                                        "echo",
                                        "logprobs",
                                        "top_logprobs",
                                        "stop",
                                        "seed",
                                        "logit_bias",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "repetition_penalty",
                                        "ignore_eos",
                                        "min_tokens",
                                        "stop_token_ids",
                                        "suppress_tokens",
                                        "bad_sequences",
                                        "bad_words",
                                        "include_stop_str_in_output",
                                        "skip_special_tokens",
                                        "allowed_token_ids",
                                        "prompt_logprobs",
                                        "truncate_prompt_tokens",
                                        "add_special_tokens",
                                        "add_generation_prompt",
                                        "continue_final_message",
                                        "chat_template_kwargs",
                                        "tools",
                                        "tool_choice",
                                        "parallel_tool_calls",
                                        "response_format",
                                        "structured_outputs",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "return_token_ids",
                                        "user",
                                        "request_id",
                                        "priority",
                                        "cache_salt",
                                        "suffix",
                                        "best_of",
                                        "use_beam_search",
                                        "modalities",
                                        "documents",
                                        "prompt",
                                        "messages"};
  int refused = 0;
  for (const std::string& field : fields)
    for (const std::string& value : values)
      for (const bool chat : {false, true}) {
        Json body = chat ? messages() : prompt();
        body[field] = Json::parse(value);
        try {
          chat ? served_->api.chat(body.dump()) : served_->api.completions(body.dump());
        } catch (const ApiError& error) {
          ++refused;
          const std::string named = field == "documents" ? error.param() : field;
          EXPECT_EQ(error.param(), named) << value << ": " << error.message();
          EXPECT_EQ(error.status(), field == "model" && value.starts_with('"') ? 404 : 400) << field << value;
        }
      }
  EXPECT_GT(refused, 2000);
}

TEST_F(RequestBodies, NullIsAbsentAndWhatIsNotKnownIsIgnored) {
  Json body = prompt();
  for (const char* field : {"model",
                            "suffix",
                            "best_of",
                            "stop",
                            "logprobs",
                            "max_tokens",
                            "seed",
                            "logit_bias",
                            "stream_options",
                            "n",
                            "response_format",
                            "structured_outputs",
                            "guided_json",
                            "guided_choice",
                            "tools",
                            "functions",
                            "user",
                            "echo",
                            "temperature",
                            "top_p",
                            "top_k",
                            "stream",
                            "truncate_prompt_tokens",
                            "prompt_logprobs",
                            "allowed_token_ids"})
    body[field] = nullptr;
  body["something"] = {{"deep", {1, 2}}};
  body["user"] = "me";
  body["priority"] = 3;
  body["cache_salt"] = "salt";
  body["metadata"] = {{"a", "b"}};
  EXPECT_NO_THROW(served_->api.completions(body.dump()));
  Json chat = messages();
  chat.update(body);
  chat["echo"] = false;
  chat["tool_choice"] = nullptr;
  EXPECT_NO_THROW(served_->api.chat(chat.dump()));
}

TEST_F(RequestBodies, WhatWouldChangeTheAnswerIsRefusedByName) {
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, Json>>{{"suffix", " end"},
                                                 {"best_of", 2},
                                                 {"use_beam_search", true},
                                                 {"prompt_embeds", "AAAA"},
                                                 {"logits_processors", Json::array({"a"})}}) {
    Json body = prompt();
    body[field] = value;
    const ApiError error = completions_error(body.dump());
    EXPECT_EQ(error.param(), field);
    EXPECT_NE(error.message().find("not supported"), std::string::npos);
  }
  for (const auto& [field, value] : std::vector<std::pair<const char*, Json>>{{"functions", Json::array()},
                                                                              {"function_call", "auto"},
                                                                              {"audio", Json::object()},
                                                                              {"modalities", {"text", "audio"}},
                                                                              {"chat_template", "{{ a }}"},
                                                                              {"echo", true}}) {
    Json body = messages();
    body[field] = value;
    EXPECT_EQ(chat_error(body.dump()).param(), field);
  }
  Json body = prompt();
  body.update({{"skip_special_tokens", false}, {"stop", "a"}});
  EXPECT_EQ(completions_error(body.dump()).param(), "skip_special_tokens");
}

TEST_F(RequestBodies, AnotherModelIsNotFound) {
  const ApiError error = completions_error(R"({"model":"gpt-9","prompt":"a"})");
  EXPECT_EQ(error.status(), 404);
  EXPECT_EQ(error.param(), "model");
  EXPECT_EQ(Json::parse(error_body(error))["error"]["type"], "NotFoundError");
  EXPECT_EQ(chat_error(R"({"model":"gpt-9","messages":[]})").status(), 404);
}

TEST_F(RequestBodies, FieldsReachTheEngine) {
  const AskedRequest one = asked({{"temperature", 0.5},
                                  {"top_k", 40},
                                  {"top_p", 0.5},
                                  {"seed", 7},
                                  {"min_tokens", 2},
                                  {"frequency_penalty", 0.5},
                                  {"logit_bias", {{"5", 2}}},
                                  {"stop_token_ids", {9}},
                                  {"ignore_eos", true},
                                  {"logprobs", 3}});
  EXPECT_EQ(one.spec.stop_ids, std::vector<int32_t>{9});
  const AskedOutput& output = one.outputs[0];
  EXPECT_FLOAT_EQ(output.sampling.temperature, 0.5f);
  EXPECT_EQ(output.sampling.top_k, 40);
  EXPECT_EQ(output.sampling.seed, 7u);
  EXPECT_EQ(output.choice.options.min_tokens, 2);
  EXPECT_FLOAT_EQ(output.choice.options.frequency_penalty, 0.5f);
  EXPECT_EQ(output.choice.options.biases[0], (TokenBias{5, 2.0f}));
  EXPECT_EQ(output.choice.options.logprobs, 3);
  EXPECT_EQ(asked({{"seed", -1}}).outputs[0].sampling.seed, UINT64_MAX);
  EXPECT_FLOAT_EQ(asked(Json::object()).outputs[0].sampling.temperature, 0.7f);  // generation_config.json
  EXPECT_NE(asked(Json::object()).outputs[0].sampling.seed, asked(Json::object()).outputs[0].sampling.seed);
  EXPECT_EQ(asked({{"stop", Json::array()}}).outputs[0].choice.stops, nullptr);
}

TEST_F(RequestBodies, OnlyTheTokensThatAreAllowedHaveBits) {
  const AskedRequest one = asked({{"allowed_token_ids", {3, 40}}});
  std::vector<uint32_t> mask(64);
  one.outputs[0].choice.options.allow({}, mask);
  EXPECT_EQ(mask[0], 8u);
  EXPECT_EQ(mask[1], 1u << 8);
  Json body = prompt();
  body.update({{"allowed_token_ids", {3}}, {"guided_regex", "a+"}});
  EXPECT_EQ(completions_error(body.dump()).param(), "allowed_token_ids");
}

TEST_F(RequestBodies, PromptsAreCutFromTheLeft) {
  EXPECT_EQ(asked({{"prompt", {5, 6, 7, 8}}, {"truncate_prompt_tokens", 2}}).spec.prompt, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(asked({{"prompt", std::vector<int>(3000, 5)}, {"truncate_prompt_tokens", -1}, {"max_tokens", 24}})
                .spec.prompt.size(),
            1000u);
}

TEST_F(RequestBodies, SpecialTokensOfAPromptAreTakenAsSuch) {
  EXPECT_EQ(asked({{"prompt", "<|end_of_text|>"}}).spec.prompt, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(asked({{"prompt", "<|end_of_text|>"}, {"add_special_tokens", false}}).spec.prompt, std::vector<int32_t>{1});
}

}  // namespace
}  // namespace nodewright::test
