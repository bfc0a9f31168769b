// How a chat template reads a conversation, found by rendering small ones: words in its source, its comments and its
// prose say nothing.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nodewright {

class ChatTemplate;

struct TemplateShape {
  // Which contents of a message reach the prompt.
  struct Content {
    bool text = true;    // a string
    bool parts = false;  // a list of {"type": "text", "text"}
  };
  // Forms of a missing content that the template accepts beside calls.
  struct NoContent {
    bool null = false, absent = false, empty = false;
  };

  std::map<std::string, Content> contents;  // by role: system, user, assistant, tool
  NoContent no_content;                     // none of them where the template prints no calls
  bool text_arguments = false;   // arguments of calls are read as the text that clients send, not as an object
  bool other_arguments = false;  // where an object is read, other JSON is printed, too
  bool reads_tools = false;      // "tools" change the prompt
  bool shows_tools = false;      // and their names are in it
  bool knows_developer = false;  // the role has a form of its own
  std::string calls, tools;      // what the template itself writes around a call, and around tools

  const Content& content_of(const std::string& role) const;
};

// Units of WorkBudget that all conversations together may take, beyond the one that is being rendered; a usual template
// takes some thousands for all of them. What is not known then is taken as not printed.
inline constexpr uint64_t kMostShapeWork = 20'000'000;

TemplateShape shape_of(const ChatTemplate& chat_template);

// Messages in OpenAI's form, with texts or parts of text for contents, as a template of that shape reads them.
nlohmann::ordered_json shaped_messages(const nlohmann::ordered_json& messages, const TemplateShape& shape);

}  // namespace nodewright
