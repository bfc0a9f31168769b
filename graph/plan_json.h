// The JSON form of a plan as a value: to_json prints it, to_html embeds it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/node.h"

namespace nodewright {

// As graph_dump.h documents for to_json.
nlohmann::ordered_json json_of(const Plan& plan);

// Names may hold bytes that are no UTF-8: those become U+FFFD. indent -1: on one line.
std::string print(const nlohmann::ordered_json& json, int indent);

}  // namespace nodewright
