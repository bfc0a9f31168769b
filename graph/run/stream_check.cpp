#include "graph/run/stream_check.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace nodewright {

void check_stream(const Device& device, std::string_view plan_name, const Stream& stream, std::string_view doing) {
  if (stream.device().context() == device.context()) return;
  throw Error({.doing = std::string(doing),
               .object = std::string(plan_name),
               .detail = fmt::format("stream '{}' is of another device or context than the plan: of {}, and the plan "
                                     "of {}",
                                     stream.name(), describe_device(stream.device()), describe_device(device)),
               .advice = "use a stream of the plan's device"});
}

}  // namespace nodewright
