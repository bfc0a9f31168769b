// The data of server-sent events, out of bytes in pieces of any size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

// Reads one stream. Lines end with \n or \r\n. Comments and the fields event, id and retry are passed over. Not
// thread-safe.
class EventLines {
 public:
  // The data of each event that these bytes complete, its lines joined by \n, in their order.
  std::vector<std::string> feed(std::string_view bytes);

 private:
  void read_line(std::string_view line, std::vector<std::string>& events);

  std::string line_;  // begun
  std::string data_;  // of the event, a \n after each line
};

}  // namespace nodewright
