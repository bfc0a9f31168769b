// Templates of every kind that checkpoints bring, and the conversation as each of them reads it.
#include "text/chat/template_shape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/work_budget.h"
#include "base/written_number.h"
#include "text/chat/chat_template.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

const std::string kMessages = "{% for m in messages %}{{ m.role }}: ", kEnd = ";{% endfor %}";
const std::string kText = kMessages + "{{ m.content }}" + kEnd;
const std::string kParts =
    kMessages + "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}" + kEnd;
const std::string kMacro = "{% macro show(all) %}{% for c in all %}{{ c['text'] }}{% endfor %}{% endmacro %}" +
                           kMessages + "{{ show(m.content) }}" + kEnd;
const std::string kBoth = kMessages +
                          "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}"
                          "{% endfor %}{% endif %}" +
                          kEnd;

std::string prompt_of(const std::string& source, const Json& messages) {
  const ChatTemplate made(source, "test");
  return made.render({{"messages", shaped_messages(messages, made.shape())}}, 0).text;
}

Json user(const Json& content) { return {{"role", "user"}, {"content", content}}; }
Json part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

TEST(TemplateShapes, ContentsAreTextOrPartsAsTheTemplateReadsThem) {
  for (const std::string& source : {kText, kParts, kMacro, kBoth}) {
    EXPECT_EQ(prompt_of(source, Json::array({user("HELLO")})), "user: HELLO;") << source;
    EXPECT_EQ(prompt_of(source, Json::array({user(Json::array({part("HELLO")}))})), "user: HELLO;") << source;
  }
  EXPECT_EQ(prompt_of(kText, Json::array({user(Json::array({part("a"), part("b")}))})), "user: a\nb;");
  EXPECT_EQ(prompt_of(kParts, Json::array({user(Json::array({part("a"), part("b")}))})), "user: ab;");
  EXPECT_EQ(ChatTemplate(kParts, "test").render({{"user", "Hi"}}).text, "user: Hi;");
  const std::string by_role =
      kMessages + "{% if m.role == 'user' %}{{ m.content[0].text }}{% else %}{{ m.content | trim }}{% endif %}" + kEnd;
  EXPECT_EQ(prompt_of(by_role, Json::array({{{"role", "system"}, {"content", Json::array({part("s")})}}, user("u")})),
            "system: s;user: u;");
}

// Forty conversations are tried, and each may take seconds.
TEST(TemplateShapes, AreFoundWithinAsMuchWorkAsAFewConversationsTake) {
  const std::string endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
  const std::string late = "{% for a in range(99999) %}{% for b in range(9) %}{% endfor %}{% endfor %}{{ messages }}";
  for (const std::string& source : {endless, late}) {
    const ChatTemplate made(source, "test");
    const WorkBudget budget(2 * kMostShapeWork);
    EXPECT_TRUE(made.shape().content_of("user").text) << "what is not known";
    EXPECT_GT(budget.spent(), kMostShapeWork / 2) << "the test asks for less than the limit";
  }
}

Json calling(const Json& arguments) {
  return {{"role", "assistant"}, {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}}};
}

TEST(TemplateShapes, ACallWithoutTextIsPrintedHoweverTheTemplateAsksForIt) {
  for (const char* asks : {"m.content is none", "m.content is not defined", "not m.content", "m.content == ''",
                           "m.content is none or m.content == ''"}) {
    const std::string source = kMessages + "{% if m.role == 'assistant' and " + asks +
                               " %}CALL {{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %}" + kEnd;
    for (const char* content : {"null", "\"\"", "[]", ""}) {
      Json call = calling("{}");
      if (*content != 0) call["content"] = Json::parse(content);
      EXPECT_EQ(prompt_of(source, Json::array({user("u"), call})), "user: u;assistant: CALL f;")
          << asks << " of " << content;
    }
  }
  EXPECT_EQ(prompt_of(kText, Json::array({user(nullptr)})), "user: ;");
  EXPECT_EQ(prompt_of(kParts, Json::array({user(nullptr)})), "user: ;");
}

std::string with_arguments(const std::string& printed) {
  return kMessages + "{% for c in m.tool_calls or [] %}{{ " + printed + " }}{% endfor %}{{ m.content or '' }}" + kEnd;
}

TEST(TemplateShapes, ArgumentsAreAnObjectOrTextAsTheTemplateReadsThem) {
  const std::string text = R"({"a": true, "n": 1e5, "i": 123456789012345678901})";
  for (const char* printed :
       {"c.function.arguments + ''", "'' ~ c.function.arguments", "c.function.arguments | tojson",
        "c.function.arguments if c.function.arguments is string else c.function.arguments | tojson"})
    EXPECT_EQ(prompt_of(with_arguments(printed), Json::array({user("u"), calling(text)})),
              "user: u;assistant: " + text + ";")
        << printed;
  EXPECT_EQ(prompt_of(with_arguments("c.function.arguments.items() | list"),
                      Json::array({user("u"), calling(R"({"a": 1e5})")})),
            "user: u;assistant: [('a', 1e5)];");
}

TEST(TemplateShapes, AnOldCallWhoseArgumentsAreNoObjectEndsNoConversation) {
  for (const char* printed :
       {"c.function.arguments + ''", "c.function.arguments | tojson", "c.function.arguments.items() | list"})
    for (const std::string& arguments : {std::string(), std::string("null"), std::string("[1]"), std::string("3"),
                                         std::string(R"({"a": "cut)"), std::string(R"({"a": 1, "a": 2})"),
                                         std::string(R"({"a": NaN})"), std::string("\"x\""), std::string(200'000, '[')})
      EXPECT_NO_THROW(prompt_of(with_arguments(printed), Json::array({user("u"), calling(arguments)})))
          << printed << arguments;
  EXPECT_EQ(prompt_of(with_arguments("c.function.arguments | tojson"), Json::array({user("u"), calling("null")})),
            "user: u;assistant: {};");
}

const char* const kCall = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}{% endfor %}";

TEST(TemplateShapes, WordsOfTheSourceSayNothing) {
  const std::string strict =
      "{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('role') }}{% endif %}"
      "{{ m.role }}: {{ m.content }};{% endfor %}";
  for (const std::string& source : {strict, "You have no tools, developers. <tool_call>" + strict,
                                    "{# tools, developer, <tool_call> #}" + strict}) {
    const TemplateShape shape = ChatTemplate(source, "test").shape();
    EXPECT_FALSE(shape.reads_tools || shape.shows_tools || shape.knows_developer) << source;
    EXPECT_EQ(shape.calls + shape.tools, "") << source;
  }
  const TemplateShape shape = ChatTemplate("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + kMessages +
                                               "{{ m.content }}" + kCall + kEnd,
                                           "test")
                                  .shape();
  EXPECT_TRUE(shape.reads_tools && shape.shows_tools);
  const TemplateShape counting = ChatTemplate("{{ messages[0].content }}{{ tools | length }}", "test").shape();
  EXPECT_TRUE(counting.reads_tools);
  EXPECT_FALSE(counting.shows_tools);
  EXPECT_NE(shape.calls.find("<tool_call>"), std::string::npos);
}

TEST(TemplateShapes, ADeveloperIsASystemUnlessHisRoleHasAFormOfItsOwn) {
  const Json messages = Json::array({{{"role", "developer"}, {"content", "d"}}, user("u")});
  EXPECT_EQ(prompt_of(kText, messages), "system: d;user: u;");
  const std::string known =
      "{% for m in messages %}{% if m.role == 'developer' %}# {{ m.content }}{% else %}{{ m.role }}: "
      "{{ m.content }};{% endif %}{% endfor %}";
  EXPECT_EQ(prompt_of(known, messages), "# duser: u;");
}

OpenPrompt open_of(const std::string& source, const Json& content) {
  const ChatTemplate made(source, "test");
  const Json messages = Json::array({user("q"), {{"role", "assistant"}, {"content", content}}});
  return made.render_open({{"messages", shaped_messages(messages, made.shape())}}, 0);
}

TEST(OpenPrompts, EndWhereTheMessageEndsWhateverStandsBehindIt) {
  const std::string source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  const std::string before = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
  for (const char* text : {"Sure", "im", "<", "<|", "e", "user", " a ", "", "assistant"}) {
    const OpenPrompt open = open_of(source, text);
    EXPECT_EQ(open.prompt.text, before + text);
    EXPECT_EQ(open.prompt.plain.size(), open.prompt.text.size());
    EXPECT_EQ(open.begin, before.size());
  }
  EXPECT_EQ(open_of(kParts, Json::array({part("a"), part("b")})).prompt.text, "user: q;assistant: ab");
  EXPECT_EQ(open_of(kMessages + "{{ m.content | trim | upper }}" + kEnd, " a < ").prompt.text,
            "user: Q;assistant: A <");
  EXPECT_ANY_THROW(open_of("{% for m in messages %}{{ m.role }}{% endfor %}", "a"));
}

}  // namespace
}  // namespace nodewright
