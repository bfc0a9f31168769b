#include "text/jinja/values/work.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/work_budget.h"
#include "runtime/error.h"

namespace nodewright::jinja {

void Work::spend(std::uint64_t units) {
  WorkBudget::spend(units);
  spent_ += std::min(units, kMostWork + 1);
  if (spent_ > kMostWork) stop("the template runs for too long or makes too much");
}

void Work::stop(const std::string& detail) const {
  throw Error(
      {.doing = "render the chat template", .object = file_, .detail = fmt::format("line {}: {}", line, detail)});
}

}  // namespace nodewright::jinja
