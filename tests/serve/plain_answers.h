// Answers of a server as its tests compare them: status, headers, body and JSON, asked for over a connection of their
// own.
#pragma once

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/serve/http/serving_fixture.h"

namespace nodewright::test {

// A whole answer, read from the bytes of the connection.
struct PlainAnswer {
  int status = 0;
  std::string head, body;  // head: status line and headers, as sent

  static PlainAnswer of(const std::string& text) {
    PlainAnswer answer;
    const size_t end = text.find("\r\n\r\n");
    EXPECT_NE(end, std::string::npos) << text;
    EXPECT_TRUE(text.starts_with("HTTP/1.1 ")) << text;
    answer.head = text.substr(0, end + 2);
    answer.body = text.substr(std::min(text.size(), end + 4));
    std::from_chars(text.data() + 9, text.data() + text.size(), answer.status);
    return answer;
  }
  // Empty where there is none.
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  nlohmann::ordered_json json() const { return nlohmann::ordered_json::parse(body); }
  nlohmann::ordered_json error() const { return json().at("error"); }
};

// By HTTP/1.0, whose answers have no chunks and end with the connection.
inline std::string post_and_close(const std::string& path, const std::string& body, const std::string& more = {}) {
  return "POST " + path +
         " HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         more + "\r\n" + body;
}

inline PlainAnswer ask(uint16_t port, const std::string& request) {
  RawClient client(port);
  client.say(request);
  return PlainAnswer::of(client.hear_answer());
}

// The whole of it, events of a stream included.
inline PlainAnswer ask_to_end(uint16_t port, const std::string& request) {
  RawClient client(port);
  client.say(request);
  return PlainAnswer::of(client.hear_to_end());
}

}  // namespace nodewright::test
