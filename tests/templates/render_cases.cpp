// Renders templates for check_templates.py: a JSON line in, {"source", "bos_token", "eos_token", "variables", "now"},
// for each a JSON line out: {"text"}, or {"refused": why}. `now`: seconds since 1970.
#include <fmt/format.h>

#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/error.h"
#include "text/chat/chat_template.h"

int main() {
  using nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    const ordered_json asked = ordered_json::parse(line);
    ordered_json answer;
    try {
      const nodewright::ChatTemplate made(asked["source"], "template", asked["bos_token"].get<std::string>(),
                                          asked["eos_token"].get<std::string>());
      answer["text"] = made.render(asked["variables"], asked["now"].get<std::time_t>()).text;
    } catch (const nodewright::Error& error) {
      answer["refused"] = error.what();
    }
    fmt::print("{}\n", answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
}
