// The data of server-sent events, out of bytes.
#include "serve/http/messages/event_lines.h"

#include <utility>

namespace nodewright {

std::vector<std::string> EventLines::feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (size_t end = 0; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    if (line_.empty()) {
      read_line(bytes.substr(0, end), events);
    } else {
      line_ += bytes.substr(0, end);
      read_line(line_, events);
      line_.clear();
    }
  }
  line_ += bytes;
  return events;
}

void EventLines::read_line(std::string_view line, std::vector<std::string>& events) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) {
    if (data_.empty()) return;
    data_.pop_back();
    events.push_back(std::exchange(data_, {}));
  } else if (line.starts_with("data:")) {
    line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
    data_ += line;
    data_ += '\n';
  }
}

}  // namespace nodewright
