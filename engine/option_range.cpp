#include "engine/option_range.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace nodewright {

void check_option(const char* option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw Error({.doing = "use option",
               .object = option,
               .detail = fmt::format("{} is outside {} to {}", value, least, most),
               .fault = Fault::usage});
}

}  // namespace nodewright
