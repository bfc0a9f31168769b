// A server for tests, whose handler the test writes or whose requests the test answers itself.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "serve/http/http_server.h"
#include "tests/serve/http/raw_client.h"

namespace nodewright {

// Requests that wait for the test to answer them. Thread-safe.
class OpenRequests {
 public:
  struct One {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
  };

  HttpHandler handler() {
    return [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      const std::lock_guard lock(mutex_);
      open_.push_back({std::move(request), std::move(reply)});
    };
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return open_.size();
  }
  // The oldest, once it is there.
  One next() {
    if (!eventually([&] { return count() > 0; })) throw std::runtime_error("no request came");
    const std::lock_guard lock(mutex_);
    if (open_.empty()) throw std::runtime_error("another thread took the request");
    One one = std::move(open_.front());
    open_.erase(open_.begin());
    return one;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<One> open_;
};

inline HttpOptions any_port() {
  HttpOptions options;
  options.port = 0;
  return options;
}

// Answers with the request's method, path, query and body.
inline void echo(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  reply->send(200, "text/plain", request.method + " " + request.path + " [" + request.query + "] " + request.body);
}

inline std::string get(const std::string& path, const std::string& more = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: test\r\n" + more + "\r\n";
}

inline std::string post(const std::string& path, const std::string& body, const std::string& more = {}) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + more + "\r\n" + body;
}

inline size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace nodewright
