// The fixture of the tests of /v1/chat/completions: a model with Qwen's template, one with Llama's, and what a client
// makes of their answers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/serve/api/fake_engine.h"

namespace nodewright::test {

inline const Json kWeather = Json::parse(
    R"({"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},
    "required":["city"]}}})");
inline const Json kUser = Json::parse(R"([{"role":"user","content":"Hello"}])");

class ChatCalls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    qwen_folder_ = new ScratchFolder;
    llama_folder_ = new ScratchFolder;
    write_chat_model(*qwen_folder_, "qwen");
    write_chat_model(*llama_folder_, "llama3");
    qwen_ = new ServedCase(qwen_folder_->path());
    llama_ = new ServedCase(llama_folder_->path(), 4096);
  }
  static void TearDownTestSuite() {
    delete std::exchange(qwen_, nullptr);
    delete std::exchange(llama_, nullptr);
    delete std::exchange(qwen_folder_, nullptr);
    delete std::exchange(llama_folder_, nullptr);
  }
  static std::unique_ptr<ApiCall> call(const Json& body) { return qwen_->api.chat(body.dump()); }
  static Json answer(const Json& body, const std::string& text) {
    const auto made = call(body);
    return Json::parse(FakeEngine(*made).run_all({.tokens = qwen_->ids(text)}));
  }
  static std::vector<Json> stream(ServedCase& served, Json body, const std::string& text, size_t at_once = 1) {
    body["stream"] = true;
    const auto made = served.api.chat(body.dump());
    return chunks_of(FakeEngine(*made).run_all({.tokens = served.ids(text), .at_once = at_once}));
  }
  static std::string prompt_of(ServedCase& served, const Json& body) {
    const auto made = served.api.chat(body.dump());
    return served.tokenizer->decode(FakeEngine(*made).submissions()[0].asked.spec.prompt, false);
  }
  static inline ScratchFolder *qwen_folder_ = nullptr, *llama_folder_ = nullptr;
  static inline ServedCase *qwen_ = nullptr, *llama_ = nullptr;
};

// What OpenAI's client makes of a stream's deltas.
inline Json joined(const std::vector<Json>& chunks) {
  Json message{{"role", ""}, {"content", ""}, {"calls", Json::array()}, {"finish_reason", nullptr}};
  for (const Json& chunk : chunks) {
    if (chunk["choices"].empty()) continue;
    const Json& choice = chunk["choices"][0];
    const Json& delta = choice["delta"];
    if (delta.contains("role")) message["role"] = message["role"].get<std::string>() + delta["role"].get<std::string>();
    if (delta.contains("content"))
      message["content"] = message["content"].get<std::string>() + delta["content"].get<std::string>();
    if (delta.contains("tool_calls"))
      for (const Json& part : delta["tool_calls"]) {
        EXPECT_EQ(part["index"], message["calls"].size());
        EXPECT_EQ(part["type"], "function");
        EXPECT_FALSE(part["id"].get<std::string>().empty());
        message["calls"].push_back(part["function"]);
      }
    if (!choice["finish_reason"].is_null()) message["finish_reason"] = choice["finish_reason"];
  }
  return message;
}

}  // namespace nodewright::test
