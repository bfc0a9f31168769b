// A chat template, and behind a zero byte the variables that it is rendered with, as JSON. What parses must render any
// of them to valid UTF-8 with a mark for each byte, or refuse, within the work that one rendering may take.
#include <nlohmann/json.hpp>

#include "runtime/error.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/meter.h"
#include "text/chat/chat_template.h"
#include "text/chat/template_shape.h"
#include "text/jinja/values/work.h"
#include "text/unicode/utf8.h"

using namespace nodewright;
using Json = nlohmann::ordered_json;

namespace {

constexpr char kFile[] = "fuzz.jinja";
constexpr std::time_t kNow = 1720269000;  // 2024-07-06

// What a template may look at: every role, tools, numbers, and text with the marks that templates cut at.
const char kConversation[] = R"({"messages": [
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Hello, w\u00f6rld! <think>no</think>\n", "n": 3},
  {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
    {"type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]},
  {"role": "tool", "content": [{"type": "text", "text": " 7 "}]},
  {"role": "user", "content": ""}],
 "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
 "add_generation_prompt": true, "enable_thinking": false})";

// Twice: what one operation counts before it does not do it.
constexpr uint64_t kMostUnitsToRender = 2 * jinja::kMostWork;
// The search for the shape renders a template forty times: it is left out where one rendering takes more.
constexpr uint64_t kFewUnits = 50'000;
constexpr uint64_t kManyUnits = 1'000'000;

void render(const ChatTemplate& chat, const Json& variables, size_t size) {
  ChatPrompt prompt;
  try {
    prompt = fuzz::metered("rendering", {kMostUnitsToRender, size}, [&] { return chat.render(variables, kNow); });
  } catch (const Error&) {  // the template refuses the conversation, or does not end
    return;
  }
  fuzz::require(to_valid_utf8(prompt.text) == prompt.text, "a prompt is valid UTF-8");
  fuzz::require(prompt.plain.size() == prompt.text.size(), "every byte of a prompt is marked");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json conversation = Json::parse(kConversation);
  const fuzz::Meter all(UINT64_MAX / 2);
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  fuzz::expect_refusal_or_success(kFile, [&] {
    const ChatTemplate chat = fuzz::metered("parsing a template", {.free = parts.first.size()}, [&] {
      return ChatTemplate(std::string(parts.first), kFile, "<bos>", "<eos>");
    });
    const fuzz::Meter first(UINT64_MAX / 2);
    render(chat, conversation, size);
    if (first.units() < kFewUnits)
      fuzz::metered("finding its shape", {kMostShapeWork + kMostUnitsToRender, size}, [&] { return chat.shape(); });
    if (!parts.has_second) return;
    const Json variables = Json::parse(parts.second, nullptr, false);
    if (variables.is_object()) render(chat, variables, size);
  });
  return all.units() < kManyUnits ? 0 : -1;
}
