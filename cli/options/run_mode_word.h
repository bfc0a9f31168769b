// The words of --mode.
#pragma once

#include <string_view>

#include "graph/plan_run.h"

namespace nodewright::cli {

// "eager", "captured" or "explicit". Throws Error with Fault::usage otherwise.
RunMode run_mode(std::string_view word);

}  // namespace nodewright::cli
