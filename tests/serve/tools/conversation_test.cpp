// Faults of a request's messages and tools are refused by their place, before a template renders them.
#include "serve/tools/conversation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/json_depth.h"
#include "runtime/error.h"
#include "serve/tools/chat_rendering.h"
#include "serve/tools/tool_choice.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright::test {
namespace {

using Json = nlohmann::ordered_json;

std::string refusal_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "it was taken";
}

std::string refusal_of_message(const char* message) {
  Json messages = Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  messages.push_back(Json::parse(message));
  return refusal_of([&] { checked_conversation(messages); });
}

TEST(CheckedConversation, NamesThePlaceThatCannotBe) {
  const std::pair<const char*, const char*> cases[] = {
      {"5", "messages[2] is the number 5, expected an object with role and content"},
      {"{}", "messages[2].role is missing, expected a string"},
      {R"({"role":5,"content":"a"})", "messages[2].role is the number 5, expected a string"},
      {R"({"role":"user"})", "messages[2].content is missing, expected a string or a list of parts"},
      {R"({"role":"user","content":5})", "messages[2].content is the number 5, expected a string or a list of parts"},
      {R"({"role":"user","content":{}})", "messages[2].content is the object {}, expected a string or a list of parts"},
      {R"({"role":"user","content":["a",5]})",
       "messages[2].content[1] is the number 5, expected an object with a type"},
      {R"({"role":"user","content":[{"text":"a"}]})", "messages[2].content[0].type is missing, expected a string"},
      {R"({"role":"user","content":[{"type":"text"}]})", "messages[2].content[0].text is missing, expected a string"},
      {R"({"role":"user","content":[{"type":"text","text":["a"]}]})",
       R"(messages[2].content[0].text is the list ["a"], expected a string)"},
      {R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]})",
       R"(messages[2].content[0].type is "image_url", and only text is supported)"},
      {R"({"role":"user","name":["a"],"content":"a"})", R"(messages[2].name is the list ["a"], expected a string)"},
      {R"({"role":"tool","tool_call_id":7,"content":"a"})",
       "messages[2].tool_call_id is the number 7, expected a string"},
      {R"({"role":"assistant","tool_calls":"f"})",
       R"(messages[2].tool_calls is the string "f", expected a list of calls)"},
      {R"({"role":"assistant","tool_calls":{"id":"a"}})",
       R"(messages[2].tool_calls is the object {"id":"a"}, expected a list of calls)"},
      {R"({"role":"assistant","tool_calls":["f"]})",
       R"(messages[2].tool_calls[0] is the string "f", expected an object with a function)"},
      {R"({"role":"assistant","tool_calls":[{"id":"a"}]})",
       "messages[2].tool_calls[0].function is missing, expected an object with name and arguments"},
      {R"({"role":"assistant","tool_calls":[{"name":"f","arguments":"{}"}]})",
       "messages[2].tool_calls[0].function is missing, expected an object with name and arguments"},
      {R"({"role":"assistant","tool_calls":[{"function":"f"}]})",
       R"(messages[2].tool_calls[0].function is the string "f", expected an object with name and arguments)"},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":"f"}},{"function":{"arguments":"{}"}}]})",
       "messages[2].tool_calls[1].function.name is missing, expected a string"},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":null}}]})",
       "messages[2].tool_calls[0].function.name is null, expected a string"},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":3}}]})",
       "messages[2].tool_calls[0].function.arguments is the number 3, expected an object, or a string that holds its "
       "JSON"},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[1]}}]})",
       "messages[2].tool_calls[0].function.arguments is the list [1], expected an object, or a string that holds its "
       "JSON"},
      {R"({"role":"assistant","tool_calls":[{"id":3,"function":{"name":"f"}}]})",
       "messages[2].tool_calls[0].id is the number 3, expected a string"},
      {R"({"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]})",
       R"(messages[2].tool_calls[0].type is the string "custom", expected "function")"},
  };
  for (const auto& [message, expected] : cases) EXPECT_EQ(refusal_of_message(message), expected) << message;
  for (const char* message :
       {R"({"role":"assistant","tool_calls":[{"function":{"name":"f"}}]})",
        R"({"role":"assistant","tool_calls":[{"id":null,"type":null,"function":{"name":"f","arguments":null}}]})",
        R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1"}}]})"})
    EXPECT_EQ(refusal_of_message(message), "it was taken") << message;
}

TEST(CheckedTools, NameThePlaceThatCannotBe) {
  const TemplateShape shape{.shows_tools = true};
  const std::optional<Tokenizer> none;
  const auto refusal = [&](const char* tool) {
    const Json tools = Json::array({Json::parse(R"({"type":"function","function":{"name":"f"}})"), Json::parse(tool)});
    return refusal_of([&] { tool_choice_of({.tools = &tools}, {.shape = &shape, .tokenizer = none}); });
  };
  EXPECT_EQ(refusal("5"), "tools[1] is the number 5, expected an object with type and function");
  EXPECT_EQ(refusal("{}"), R"(tools[1].type is missing, expected "function")");
  EXPECT_EQ(refusal(R"({"type":"function"})"), "tools[1].function is missing, expected an object with a name");
  EXPECT_EQ(refusal(R"({"type":"function","function":{}})"), "tools[1].function.name is missing, expected a string");
  EXPECT_EQ(refusal(R"({"type":"function","function":{"name":3}})"),
            "tools[1].function.name is the number 3, expected a string");
  EXPECT_EQ(refusal(R"({"type":"function","function":{"name":"f","description":3}})"),
            "tools[1].function.description is the number 3, expected a string");
  EXPECT_EQ(refusal(R"({"type":"function","function":{"name":"f","parameters":"x"}})"),
            R"(tools[1].function.parameters is the string "x", expected an object)");
}

class RenderedConversation : public testing::Test {
 protected:
  std::string rendered(const std::string& chat_template, const Json& messages) {
    folder_.write("tokenizer_config.json", "{}");
    folder_.write("chat_template.jinja", chat_template);
    return rendered_chat(ChatTemplates::from_folder(folder_.path()),
                         {.messages = messages, .variables = Json::object()})
        .prompt.text;
  }
  ScratchFolder folder_;
};

// As templates of Mistral do.
TEST_F(RenderedConversation, NamesAnIdThatTheTemplateNeeds) {
  const std::string needs =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id is not defined %}{{ raise_exception('Oh') }}"
      "{% endif %}{{ c.function.name }}{% endfor %}{% if m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}"
      "{{ raise_exception('Oh') }}{% endif %}{% endif %}{{ m.content or '' }}{% endfor %}";
  Json messages = Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","tool_calls":[
    {"id":"123456789","function":{"name":"f"}},{"function":{"name":"g"}}]},{"role":"tool","content":"b"}])");
  const auto refusal = [&] { return refusal_of([&] { rendered(needs, messages); }); };
  EXPECT_EQ(refusal(), "messages[1].tool_calls[1].id is missing, and the chat template needs it");
  messages[1]["tool_calls"][1]["id"] = "223456789";
  EXPECT_EQ(refusal(), "messages[2].tool_call_id is missing, and the chat template needs it");
  messages[2]["tool_call_id"] = "short";
  EXPECT_THROW(rendered(needs, messages), Error) << "a fault of another kind is the template's to tell";
  messages[2]["tool_call_id"] = "123456789";
  EXPECT_EQ(rendered(needs, messages), "afgb");
}

std::string nested(int depth) {
  std::string text = "1";
  for (int i = 0; i < depth; ++i) text = R"({"a":)" + text + "}";
  return text;
}

// The arguments are an object to this template, and those of up to the limit are given as one, however they were sent.
TEST_F(RenderedConversation, TakesArgumentsAsDeepAsARequestMayBe) {
  const std::string prints =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}"
      "{% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson }}{% endfor %}"
      "{% endfor %}{{ m.content or '' }}{% endfor %}";
  for (const int depth : {1, 45, 46, 63, 64, 65, kDeepestRequestJson}) {
    Json call = Json::parse(R"({"function":{"name":"f"}})");
    call["function"]["arguments"] = nested(depth);
    Json messages = Json::parse(R"([{"role":"user","content":"u"}])");
    messages.push_back({{"role", "assistant"}, {"tool_calls", Json::array({call})}});
    std::string expected = nested(depth - 1);
    for (size_t at = expected.find(':'); at != std::string::npos; at = expected.find(':', at + 1))
      expected.insert(at + 1, " ");
    EXPECT_EQ(rendered(prints, messages), "ua=" + expected) << depth;
    messages[1]["tool_calls"][0]["function"]["arguments"] = Json::parse(nested(depth));
    EXPECT_EQ(rendered(prints, messages), "ua=" + expected) << depth;
  }
}

}  // namespace
}  // namespace nodewright::test
