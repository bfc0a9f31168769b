// The JSON form of a plan as a value: to_json prints it, to_html embeds it, diff_plans compares two of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/dump/graph_dump.h"

namespace nodewright {

// A plan by itself, with those inside it, as graph_dump.h documents for to_json.
nlohmann::ordered_json json_of(const Plan& plan);

// That with what to_json adds to the outermost plan. Throws Error as check_timings does.
nlohmann::ordered_json document_of(const Plan& plan, const PlanTimings* timings, const PlanFacts& about);

// Names may hold bytes that are no UTF-8: those become U+FFFD. indent -1: on one line.
std::string print(const nlohmann::ordered_json& json, int indent);

}  // namespace nodewright
