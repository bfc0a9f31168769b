// What POST /sleep and POST /wake_up ask for, and their answers. docs/serving.md. No socket, no engine.
#pragma once

#include <string>
#include <string_view>

#include "serve/api/api_error.h"
#include "serve/loop/sleep_order.h"

namespace nodewright {

// Parse queries such as "level=2&mode=abort" and "tags=weights"; `told` stays empty. Other names are ignored. Throw
// ApiError 400 naming the one whose value cannot be.
SleepOrder asked_sleep(std::string_view query);
SleepOrder asked_wake(std::string_view query);

// The body of what is done: {"is_sleeping", "level", "free_bytes": {"before", "after"}, "freed_bytes", "seconds",
// "seconds_of": {part: seconds}}. "freed_bytes" is below 0 where memory was taken.
std::string sleep_body(const SleepOutcome& outcome);
// The error of any other outcome; `now`: the loop's admission.
ApiError sleep_error(const SleepOutcome& outcome, const ApiError& now);

// {"is_sleeping"}
std::string is_sleeping_body(SleepLevel level);

}  // namespace nodewright
