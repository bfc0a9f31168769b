// An iteration log as one SVG drawing: the time of each step, how full it was, and the queue after it.
#pragma once

#include <string>

#include "cli/report/step_report.h"

namespace nodewright::cli {

std::string step_plot(const StepLog& log, const StepReport& report);

}  // namespace nodewright::cli
