// Calls of tools in the text of a model: found while it streams, and what a request says about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling/choice_options.h"
#include "serve/api/asked/request_body.h"
#include "serve/fields/text_structure.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

// How the text of an answer holds calls.
enum class ToolCallForm : uint8_t {
  none,    // not at all
  tagged,  // <tool_call>{"name", "arguments"}</tool_call> beside other text: Qwen, Hermes
  bare,    // {"name", "parameters"}; ... and nothing else: Llama-3
  named,   // the whole text is the arguments of one function, where the request forces one and the template shows none
           // of the forms above
  listed,  // the whole text is a list of {"name", "parameters"}, where it forces some
};

// What a request says.
struct ToolChoice {
  ToolCallForm form = ToolCallForm::none;
  std::vector<std::string> names;          // of functions; where the request names one, that one
  bool names_one = false;                  // the request names the function to be called
  bool parallel = true;                    // more than one call is taken
  std::optional<TextStructure> structure;  // what the text must follow, where the request forces a call
};

// Of "tools", "tool_choice" and "parallel_tool_calls", for a template with this source. Throws ApiError 400: a tool
// that is no function, a choice of a function that is not there, a template that knows no tools, or parameters that
// cannot be forced.
ToolChoice tool_choice_of(const RequestBody& body, const std::string& template_source);

// For an output that the request forces to call, whose end `inner` tells (empty: nobody does): it ends as complete with
// its 16th call, too, where a model that repeats itself would go on until max_tokens. `tokenizer` must outlive it.
EndFunction end_after_calls(EndFunction inner, const ToolChoice& choice, const Tokenizer& tokenizer, bool skip_special);

// Splits the text of one output. Holds back what may be a call until it is whole.
class ToolCallText {
 public:
  explicit ToolCallText(const ToolChoice& choice) : choice_(choice) {}

  // Returns the text that is known to be in no call.
  std::string push(std::string_view text);
  // No more text: what is held back is a call or text.
  std::string finish();
  // The calls that have become whole since the last time.
  std::vector<ToolCall> take_calls() { return std::exchange(calls_, {}); }
  // Calls so far.
  int64_t count() const { return count_; }

 private:
  // How far the object at the beginning of a text was looked at. A text that grows is read once.
  struct ObjectScan {
    size_t at = 0;
    int depth = 0;
    bool in_string = false, is_escaped = false;
    // Goes on; true when the object has ended, before `at`.
    bool passes_object(std::string_view text);
  };

  std::string push_tagged();
  std::string push_objects();
  bool take_object(size_t first);
  bool add_call(std::string_view json, bool known_only);
  void add(std::string name, std::string arguments);

  ToolChoice choice_;
  std::string held_;
  bool in_call_ = false;     // tagged: behind <tool_call>
  size_t searched_ = 0;      // bytes of it that hold no </tool_call>
  ObjectScan scan_;          // bare, listed: of what is held, without the space before it
  bool is_content_ = false;  // bare, listed: the text began with something else
  std::vector<ToolCall> calls_;
  int64_t count_ = 0;
};

}  // namespace nodewright
