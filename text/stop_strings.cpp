#include "text/stop_strings.h"

#include <algorithm>

namespace nodewright {

bool StopStrings::push(TokenId id, bool may_stop) {
  if (stopped_) return true;
  held_ += stream_.push(id);
  return scan(may_stop);
}

// Moves to the text what begins no stop string.
bool StopStrings::scan(bool may_stop) {
  size_t begin = 0, end = std::string::npos;  // of the stop string that is complete first
  for (const std::string& stop : strings_)
    if (const size_t at = held_.find(stop); may_stop && at != std::string::npos)
      if (const size_t after = at + stop.size(); after < end || (after == end && at < begin))
        begin = at, end = after, matched_ = stop;
  if (end != std::string::npos) {
    text_ += held_.substr(0, begin);
    held_.clear();
    return stopped_ = true;
  }
  size_t keep = held_.size();  // from here on a stop string may have begun
  for (const std::string& stop : strings_)
    for (size_t at = held_.size() - std::min(held_.size(), stop.size() - 1); at < keep; ++at)
      if (stop.starts_with(std::string_view(held_).substr(at))) keep = at;
  text_ += held_.substr(0, keep);
  held_.erase(0, keep);
  return false;
}

void StopStrings::finish() {
  if (stopped_) return;
  held_ += stream_.flush();
  if (scan(true)) return;
  text_ += held_;
  held_.clear();
}

}  // namespace nodewright
