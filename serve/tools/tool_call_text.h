// Tool calls in the text of a model, found while it streams.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/sampling/choice_options.h"
#include "serve/tools/tool_choice.h"
#include "text/text_stream.h"

namespace nodewright {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

// Splits the text of one output. Holds back what may be a call until it is whole. One thread at a time.
class ToolCallText {
 public:
  explicit ToolCallText(ToolChoice choice) : choice_(std::move(choice)) {}

  // Returns the text that is known to be in no call.
  std::string push(std::string_view text);
  // No more text: what is held back is a call or text.
  std::string finish();
  // The calls that have become whole since the last time.
  std::vector<ToolCall> take_calls() { return std::exchange(calls_, {}); }
  // Calls so far.
  int64_t count() const { return count_; }

 private:
  // How far the object or list at the beginning of a text was looked at. A text that grows is read once.
  struct ObjectScan {
    size_t at = 0;
    int depth = 0;
    bool in_string = false, is_escaped = false;
    // Goes on; true when it has ended, before `at`.
    bool passes_object(std::string_view text);
  };
  // How far a call between tags was looked at: a tag within a string of its JSON is text.
  struct TagScan {
    size_t at = 0;
    bool in_string = false, is_escaped = false;
    bool is_json = true;  // else every closing tag ends it
    // Goes on; where the closing tag stands, or npos.
    size_t close_in(std::string_view text);
  };
  // What stands behind a mark: calls that were taken, the beginning of one, or something else.
  enum class Marked : uint8_t { taken, unfinished, other };

  std::string push_tagged();
  std::string push_objects();
  std::string push_marked();
  Marked take_marked();
  Marked take_marked_list(size_t first);
  Marked take_marked_name(size_t first);
  std::string_view mark() const;
  std::string take_text_before_mark();
  bool take_object(size_t first);
  bool add_list(std::string_view json);
  bool add_call(std::string_view json, bool known_only);
  void add(std::string name, std::string arguments);

  ToolChoice choice_;
  std::string held_;
  bool in_call_ = false;     // tagged, marked: after the mark
  TagScan tag_scan_;         // tagged: of what is held, after the mark
  ObjectScan scan_;          // bare, listed, marked: of what is held, from its first bracket on
  bool is_content_ = false;  // bare, listed: the text began with something else
  std::vector<ToolCall> calls_;
  int64_t count_ = 0;
  bool after_call_ = false;  // nothing but space has come since the last one
};

// For an output that the request forces to call, whose end `inner` tells (empty: nobody does): it ends as complete with
// its 16th call, too, where a model that repeats itself would go on until max_tokens. `stream`: of the output's text.
EndFunction end_after_calls(EndFunction inner, const ToolChoice& choice, TextStream stream);

}  // namespace nodewright
