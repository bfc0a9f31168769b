// Rendered prompts against `transformers` (golden files), single constructs against its Jinja environment, and what a
// template may not do: hang, crash, or let a message spell special tokens.
#include "text/chat/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "runtime/error.h"
#include "tests/support/processor_time.h"
#include "tests/support/scratch_folder.h"
#include "tests/text/tokenizer_goldens.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path chat_folder() { return test::source_dir() / "tests/golden/chat"; }

Json read_ordered(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return Json::parse(stream);
}

std::time_t time_of(const Json& now) {
  std::tm parts{};
  parts.tm_year = now[0].get<int>() - 1900;
  parts.tm_mon = now[1].get<int>() - 1;
  parts.tm_mday = now[2];
  parts.tm_hour = now[3];
  parts.tm_min = now[4];
  parts.tm_isdst = -1;
  return std::mktime(&parts);
}

std::optional<std::string> string_or_nothing(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
}

class ChatFamily : public testing::TestWithParam<std::string> {
 protected:
  const Json golden_ = read_ordered(chat_folder() / GetParam() / "cases.json");
  const ChatTemplate template_{read_text(chat_folder() / GetParam() / "chat_template.jinja"),
                               GetParam() + "/chat_template.jinja", string_or_nothing(golden_["bos_token"]),
                               string_or_nothing(golden_["eos_token"])};
  const Tokenizer tokenizer_ = Tokenizer::from_file(golden_tokenizer(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Released, ChatFamily, testing::Values("llama3", "qwen", "gemma"),
                         [](const auto& info) { return info.param; });

TEST_P(ChatFamily, RendersAndEncodesAsTransformersDoes) {
  ASSERT_GE(golden_["cases"].size(), 20u);
  std::size_t with_ids = 0;
  for (const auto& one : golden_["cases"]) {
    if (one.contains("refused")) {
      EXPECT_THROW(template_.render(one["variables"], time_of(golden_["now"])), Error) << one["refused"];
      continue;
    }
    const ChatPrompt prompt = template_.render(one["variables"], time_of(golden_["now"]));
    EXPECT_EQ(prompt.text, one["text"].get<std::string>());
    ASSERT_EQ(prompt.plain.size(), prompt.text.size());
    if (!one.contains("ids")) continue;
    EXPECT_EQ(encode_prompt(tokenizer_, prompt), one["ids"].get<std::vector<TokenId>>()) << prompt.text;
    ++with_ids;
  }
  EXPECT_GE(with_ids, 15u);
}

TEST_P(ChatFamily, SaysTheTemplatesOwnWordsWhenItRefuses) {
  for (const auto& one : golden_["cases"]) {
    if (!one.contains("refused") || GetParam() == "qwen") continue;  // Qwen3's never raises
    try {
      template_.render(one["variables"], 0);
      ADD_FAILURE() << one["refused"];
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(one["refused"].get<std::string>()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("chat_template.jinja': line "), std::string::npos) << error.what();
    }
  }
}

// The same conversation with every special token of the vocabulary in it: not one more comes out.
TEST_P(ChatFamily, MakesNoSpecialTokenFromAMessage) {
  std::string all;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer_.vocab_size()); ++id) {
    if (tokenizer_.is_special(id)) all += tokenizer_.id_to_bytes(id);
  }
  const auto specials_of = [&](const std::string& content) {
    std::vector<TokenId> specials;
    const ChatPrompt prompt = template_.render({{"user", content}, {"assistant", content}, {"user", content}});
    for (const TokenId id : encode_prompt(tokenizer_, prompt)) {
      if (tokenizer_.is_special(id)) specials.push_back(id);
    }
    EXPECT_NE(prompt.text.find(content), std::string::npos);
    return specials;
  };
  EXPECT_EQ(specials_of(all), specials_of("harmless"));
  const ChatPrompt prompt = template_.render({{"user", all}});
  EXPECT_GT(tokenizer_.encode(prompt.text, {.parse_special = true}).size(), 0u);
  EXPECT_NE(tokenizer_.encode(prompt.text, {.parse_special = true}), encode_prompt(tokenizer_, prompt));
}

TEST_P(ChatFamily, WritesBosOnceIfAtAll) {
  const ChatPrompt prompt = template_.render({{"user", "Hello"}});
  const auto ids = encode_prompt(tokenizer_, prompt);
  const auto bos = string_or_nothing(golden_["bos_token"]);
  const auto count = bos ? std::count(ids.begin(), ids.end(), *tokenizer_.token_to_id(*bos)) : 0;
  EXPECT_EQ(count, bos ? 1 : 0);
}

TEST(ChatTemplate, TreatsEachConstructAsJinjaDoes) {
  const Json golden = read_ordered(chat_folder() / "constructs.json");
  ASSERT_GE(golden["cases"].size(), 85u);
  for (const auto& one : golden["cases"]) {
    const std::string source = one["source"];
    Json variables = golden["values"];
    variables["messages"] = Json::array();
    std::string found;
    try {
      found = ChatTemplate(source, "test").render(variables, time_of(golden["now"])).text;
    } catch (const Error& error) {
      EXPECT_TRUE(one.contains("refused")) << source << "\n  " << error.what() << "\n  " << one.value("text", "");
      continue;
    }
    EXPECT_EQ(found, one.value("text", "(refused) " + one.value("refused", ""))) << source;
  }
}

std::string refusal_of(const std::string& source, const Json& variables = Json::object()) {
  try {
    ChatTemplate(source, "test.jinja").render(variables, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing refused";
}

TEST(ChatTemplate, RefusesByNameWhatItDoesNotSupport) {
  for (const auto& [source, named] : std::vector<std::pair<std::string, std::string>>{
           {"a\n{% include 'x' %}", "line 2: the block {% include %} is not supported"},
           {"{% block a %}{% endblock %}", "{% block %}"},
           {"{% call f() %}{% endcall %}", "{% call %}"},
           {"{% raw %}{% endraw %}", "{% raw %}"},
           {"{{ 1 | pprint }}", "the filter 'pprint'"},
           {"{% for a in [] %}{{ 1 | pprint }}{% endfor %}", "the filter 'pprint'"},
           {"{% if true %}{{ 1 | from_json }}{% endif %}", "the filter 'from_json'"},
           {"{{ 1 | tojson if n is lower else 2 }}", "the test 'lower'"},
           {"{{ 1 is lower }}", "the test 'lower'"},
           {"{{ cycler(1) }}", "the function cycler()"},
           {"{{ f(1) }}", "the function f()"},
           {"{{ 'a'.zfill(3) }}", "the method zfill() of a string"},
           {"{{ [1].append(2) }}", "the method append() of a list"},
           {"{{ {'a': 1}.update({}) }}", "the method update() of a dict"},
           {"{{ 2 ** 3 }}", "the operator **"},
           {"{% for i in [1] recursive %}{% endfor %}", "recursive"},
           {"{% for i in [1] %}{{ loop.cycle(1) }}{% endfor %}", "loop.cycle()"},
           {"{% set a, b = 1, 2 %}", "{% set a, b = ... %}"},
           {"{{ [1] | map('string') }}", "a generator prints as an address"},
           {"{{ f(*a) }}", "an argument with *"},
           {"{{ ' \\101' }}", "the escape \\1"},
       }) {
    EXPECT_NE(refusal_of(source).find(named), std::string::npos) << source << "\n  " << refusal_of(source);
  }
}

TEST(ChatTemplate, SaysWhereATemplateIsBroken) {
  for (const auto& [source, named] : std::vector<std::pair<std::string, std::string>>{
           {"\n\n{% if a %}", "line 3: a block has no elif or else or endif"},
           {"{% endif %}", "{% endif %}"},
           {"{{ a ", "line 1: an expression {{ has no end"},
           {"{# a", "a comment {# has no end"},
           {"{% for %}", "the name of a loop variable is expected where %} stands"},
           {"{{ a b }}", "}} is expected where 'b' stands"},
           {"{{ }}", "an expression is expected where }} stands"},
           {"{{ 'a }}", "a string has no end"},
           {"{{ (1] }}", "']' closes nothing"},
           {"{{ a $ }}", "the character '$' is not expected"},
           {"{{ 99999999999999999999 }}", "99999999999999999999 is too large"},
           {"{% break %}", "break outside of a loop"},
           {"{{ 9223372036854775807 + 1 }}", "a number is too large"},
           {std::string((1 << 20) + 1, 'x'), "1048577 bytes, the limit is 1048576"},
       }) {
    EXPECT_NE(refusal_of(source).find(named), std::string::npos)
        << source.substr(0, 100) << "\n  " << refusal_of(source);
  }
}

std::string times_over(const std::string& part, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += part;
  return all;
}

TEST(ChatTemplate, FormatsNumbersAsPythonDoes) {
  for (const auto& [source, text] : std::vector<std::pair<std::string, std::string>>{
           {"{{ '{:05}|{:05}'.format(-3, 2.5) }}", "-0003|002.5"},
           {"{{ '{:<05}|{:^07.2f}'.format(3, 1.5) }}", "30000|01.5000"},  // a zero fills where no other fill is named
           {"{{ '{:*<05}|{:=+5}'.format(3, 3) }}", "3****|+   3"},
       })
    EXPECT_EQ(ChatTemplate(source, "t", {}, {}).render({}).text, text) << source;
}

// None of these may take long, much memory or much stack.
TEST(ChatTemplate, EndsWhateverATemplateDoes) {
  const std::string too_long = "the template runs for too long or makes too much", too_deep = "too deep";
  for (
      const auto& [source, named] : std::vector<std::pair<std::string, std::string>>{
          {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "macros call each other too deep"},
          {"{% for i in range(9000000000000) %}{% endfor %}", too_long},
          {times_over("{% for i in range(1000) %}", 6) + "x" + times_over("{% endfor %}", 6), too_long},
          {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           too_long},
          {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", too_long},
          {"{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
           "prints as more than 16777216 bytes"},
          {"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
           "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
           too_long},
          {"{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}", too_deep},
          {"{% set ns = namespace() %}{% set ns.x = ns %}", "a namespace in another value"},
          {"{% set ns = namespace() %}{{ [ns] }}", "a namespace in another value"},
          {"{{ 'abc' * 1000000000000 }}", too_long},
          {"{{ ('x' * 1000000).replace('x', 'y' * 1000) }}", too_long},
          {"{{ ('x' * 1000000).replace('', 'y' * 1000) }}", too_long},
          {"{{ 'a\nb' | indent(9000000000) }}", too_long},
          {"{% set s = 'x' * 1000000 %}{% set ns = namespace(x=[s]) %}{% for i in range(12) %}"
           "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | sort }}",
           too_long},
          {"{% set s = 'x' * 1000000 %}{% set ns = namespace(x=[s]) %}{% for i in range(12) %}"
           "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | unique(true) | list | length }}{{ ns.x | min(true) }}",
           too_long},
          {"{{ '{:>9000000000}'.format(1) }}", "is not supported"},
          {"{{ '{:>10000}'.format(1) * 100000 }}", too_long},
          {"{% filter upper %}" + times_over("{% filter upper %}", 300), too_deep},
          {"{{ [1] | tojson(indent=9000000000) }}", "an indent of 9000000000"},
          {"{{ " + times_over("(", 20000) + "1" + times_over(")", 20000) + " }}", too_deep},
          {"{{ " + times_over("[", 20000) + times_over("]", 20000) + " }}", too_deep},
          {"{{ " + times_over("not ", 20000) + "1 }}", too_deep},
          {"{{ " + times_over("-", 20000) + "1 }}", too_deep},
          {"{{ 1" + times_over("+1", 100000) + " }}", "an expression is more than 100 deep"},
          {"{{ a" + times_over(".a", 100000) + " }}", "an expression is more than 100 deep"},
          {"{{ a" + times_over("|trim", 100000) + " }}", "an expression is more than 100 deep"},
          {"{{ 1" + times_over(" if 1 else 1", 80000) + " }}", too_deep},
          {times_over("{% if 1 %}", 50000), too_deep},
          {"{{ x }}" + times_over("{% for i in range(99) %}", 50), "a block has no"},
      }) {
    std::string what;
    EXPECT_LT(test::seconds_of([&] { what = refusal_of(source); }), test::allowed_seconds(2)) << source.substr(0, 120);
    EXPECT_NE(what.find(named), std::string::npos) << source.substr(0, 120) << "\n  " << what.substr(0, 300);
  }
  EXPECT_EQ(refusal_of("{% if 0 %}" + times_over("{% elif 0 %}", 20000) + "{% endif %}"), "nothing refused");
}

// Cut and spliced anywhere, a template renders or gives an Error; nothing else.
TEST(ChatTemplate, SurvivesADamagedTemplate) {
  std::mt19937 random(13);
  int refused = 0;
  const std::vector<std::string> pieces = {"{%", "%}",     "{{",   "}}", "-", "|", "(", ")", "'",
                                           "if", "endfor", "loop", " ",  "[", "]", "0", "~", "not"};
  for (const char* family : {"llama3", "qwen", "gemma"}) {
    const std::string whole = read_text(chat_folder() / family / "chat_template.jinja");
    const Json variables = read_ordered(chat_folder() / family / "cases.json")["cases"][2]["variables"];
    for (int round = 0; round < 200; ++round) {
      std::string damaged = whole;
      for (int i = 0; i < 3; ++i) {
        const std::size_t at = random() % damaged.size();
        damaged.replace(at, random() % 4, pieces[random() % pieces.size()]);
      }
      refused += refusal_of(damaged, variables) != "nothing refused";
    }
  }
  EXPECT_GT(refused, 200);
}

// A folder that goes away with the object.
class ModelFolder {
 public:
  ModelFolder() { std::filesystem::create_directory(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  const std::filesystem::path& path() const { return path_; }
  std::string hello() const { return ChatTemplate::from_folder(path_).render({{"user", "Hello"}}).text; }
  std::string refusal() const {
    try {
      return "rendered " + hello();
    } catch (const Error& error) {
      return error.what();
    }
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("nodewright-chat-" + std::to_string(::getpid()));
};

TEST(ChatTemplate, ComesFromItsOwnFileBeforeTheTokenizersConfig) {
  const ModelFolder folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token":{"content":"<s>"},"chat_template":"config {{ bos_token }}{{ eos_token is defined }}"})");
  EXPECT_EQ(folder.hello(), "config <s>False");
  folder.write("chat_template.jinja", "own {{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(folder.hello(), "own <s>Hello");
}

TEST(ChatTemplate, TakesTheOneCalledDefaultOfSeveral) {
  const ModelFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"no"},)"
                                        R"({"name":"default","template":"yes"}]})");
  EXPECT_EQ(folder.hello(), "yes");
  folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"no"}]})");
  EXPECT_NE(folder.refusal().find("'default', only: rag"), std::string::npos) << folder.refusal();
}

TEST(ChatTemplates, AreChosenAsTransformersChooses) {
  const ModelFolder folder;
  const auto chosen = [&](bool has_tools, const std::string& name = {}) {
    const ChatTemplates all = ChatTemplates::from_folder(folder.path());
    return all.chosen(has_tools, name).render(std::vector<ChatMessage>{{"user", "Hello"}}).text;
  };
  folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"r"},)"
                                        R"({"name":"tool_use","template":"t"},{"name":"default","template":"d"}]})");
  EXPECT_EQ(chosen(false) + chosen(true) + chosen(true, "rag") + chosen(true, "default"), "dtrd");
  EXPECT_ANY_THROW(chosen(false, "other"));
  folder.write("chat_template.jinja", "D");  // a file hides those of the configuration
  EXPECT_EQ(chosen(false) + chosen(true), "DD");
  EXPECT_ANY_THROW(chosen(false, "rag"));
  std::filesystem::create_directory(folder.path() / "additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "T");
  folder.write("additional_chat_templates/rag.jinja", "R");
  EXPECT_EQ(chosen(false) + chosen(true) + chosen(false, "rag"), "DTR");
}

TEST(ChatTemplate, NamesTheFileThatIsMissingOrWrong) {
  const ModelFolder folder;
  EXPECT_NE(folder.refusal().find("neither chat_template.jinja nor tokenizer_config.json"), std::string::npos);
  for (const auto& [content, named] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "no chat_template in tokenizer_config.json"},
           {"[]", "it is not a JSON object"},
           {"{", "it is not a JSON object"},
           {R"({"chat_template":7})", "chat_template is number"},
           {R"({"chat_template":[7]})", "an entry of chat_template"},
           {R"({"chat_template":"{{"})", "tokenizer_config.json': line 1"}}) {
    folder.write("tokenizer_config.json", content);
    EXPECT_NE(folder.refusal().find(named), std::string::npos) << content << "\n  " << folder.refusal();
    EXPECT_NE(folder.refusal().find("tokenizer_config.json"), std::string::npos) << folder.refusal();
  }
}

TEST(ChatTemplateFiles, ThatAreNoTextAreRefusedByFileAndByte) {
  const auto refusal = [](const char* file, const std::string& bytes, const char* config) {
    const ScratchFolder folder;
    std::filesystem::create_directory(folder.path() / "additional_chat_templates");
    folder.write("tokenizer_config.json", config);
    if (*file != '\0') folder.write(file, bytes);
    try {
      ChatTemplates::from_folder(folder.path());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* file : {"chat_template.jinja", "additional_chat_templates/rag.jinja"}) {
    const std::string bytes = refusal(file, "{{ a }}\xc3(", "{}"), zero = refusal(file, std::string("ab\0c", 4), "{}"),
                      cut = refusal(file, "abc\xe2\x82", "{}");
    EXPECT_NE(bytes.find(file), std::string::npos) << bytes;
    EXPECT_NE(bytes.find("byte 7 is 0xc3, which is not UTF-8"), std::string::npos) << bytes;
    EXPECT_NE(zero.find("byte 2 is 0x00, which stands in no text"), std::string::npos) << zero;
    EXPECT_NE(cut.find("byte 3 is 0xe2, which is not UTF-8"), std::string::npos) << cut;
  }
  const std::string named = refusal(
      "", "", R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "rag", "template": "a\u0000"}]})");
  EXPECT_NE(named.find("tokenizer_config.json"), std::string::npos) << named;
  EXPECT_NE(named.find("byte 1 of chat_template 'rag' is 0x00"), std::string::npos) << named;
  EXPECT_EQ(refusal("chat_template.jinja", "\xc3\xa9{{ a }}", "{}"), "");
}

}  // namespace
}  // namespace nodewright
