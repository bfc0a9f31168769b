#include "cli/options/run_mode_word.h"

#include <string>

#include "runtime/error.h"

namespace nodewright::cli {

RunMode run_mode(std::string_view word) {
  for (const RunMode mode : {RunMode::eager, RunMode::captured, RunMode::explicit_})
    if (word == to_string(mode)) return mode;
  throw Error({.doing = "choose a run",
               .object = std::string(word),
               .detail = "no such run",
               .advice = "eager, captured or explicit",
               .fault = Fault::usage});
}

}  // namespace nodewright::cli
