// The fields of a request that say which tokens may come, for an error where together they leave none.
#pragma once

#include <string>
#include <vector>

#include "serve/fields/request_fields.h"

namespace nodewright {

// Those that `line` has, as it calls them. `structure`: the name of what its text must follow where that is no field of
// the line; empty: none.
std::vector<std::string> denying_fields(const RequestFields& line, const std::string& structure = {});

// "what guided_choice and bad_words ask for cannot be done: ..."; `why` alone where there are no such fields.
std::string asked_in_vain(const std::vector<std::string>& fields, const std::string& why);

}  // namespace nodewright
