// The JSON form of a plan as a value: to_json prints it, to_html embeds it, diff_plans compares two of them, plan_of
// (graph/read/read_graph.h) makes a plan of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "graph/dump/graph_dump.h"

namespace nodewright {

// Both without what to_json adds to the outermost plan; of entries that are the same at one place of both no more than
// diff_plans needs.
std::pair<nlohmann::ordered_json, nlohmann::ordered_json> documents_to_compare(const Plan& before, const Plan& after);

// What to_json prints. Throws Error as check_timings does.
nlohmann::ordered_json document_of(const Plan& plan, const PlanTimings* timings, const PlanFacts& about);

// What the dumps call a field's role ("inout") and type ("float32").
std::string_view role_word(Role role);
std::string_view type_word(ElementType type);

// Names may hold bytes that are no UTF-8: those become U+FFFD. indent -1: on one line.
std::string print(const nlohmann::ordered_json& json, int indent);

}  // namespace nodewright
