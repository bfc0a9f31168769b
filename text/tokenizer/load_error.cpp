#include "text/tokenizer/load_error.h"

#include <utility>

#include "runtime/error.h"

namespace nodewright {

void fail_load(const std::string& file, std::string detail, std::string advice) {
  throw Error({.doing = "load tokenizer", .object = file, .detail = std::move(detail), .advice = std::move(advice)});
}

}  // namespace nodewright
