#include "cli/options/refusals.h"

#include <utility>

#include "runtime/error.h"

namespace nodewright::cli {
namespace {

[[noreturn]] void refuse_use(const char* doing, std::string object, std::string why, std::string way_out) {
  throw Error({.doing = doing,
               .object = std::move(object),
               .detail = std::move(why),
               .advice = std::move(way_out),
               .fault = Fault::usage});
}

}  // namespace

void refuse_option(std::string option, std::string why, std::string way_out) {
  refuse_use("use", std::move(option), std::move(why), std::move(way_out));
}

void refuse_pair(std::string options, std::string why, std::string way_out) {
  refuse_use("use together", std::move(options), std::move(why), std::move(way_out));
}

}  // namespace nodewright::cli
