#include "bench/steps/http_traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "runtime/error.h"
#include "serve/http/http_client.h"

namespace nodewright {
namespace {

using HttpClock = std::chrono::steady_clock;

double ms_from_to(HttpClock::time_point from, HttpClock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// A request over HTTP, and when its events came.
struct Sent {
  HttpClock::time_point arrival;
  std::vector<HttpClock::time_point> events;  // that have a choice
  int64_t tokens = 0;                         // by the usage at its end
};

// Connections that send nothing, as those of clients that wait for their users.
class IdleConnections {
 public:
  IdleConnections(const HttpPlace& place, int64_t count) {
    if (count == 0) return;
    const SocketAddress address = address_of(place);
    for (int64_t i = 0; i < count; ++i) {
      const int file = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (file < 0 || connect(file, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) {
        const std::string reason = std::strerror(errno);
        if (file >= 0) close(file);
        close_all();
        throw Error({.doing = "open idle connection", .object = std::to_string(i), .detail = reason});
      }
      files_.push_back(file);
    }
  }
  ~IdleConnections() { close_all(); }
  IdleConnections(const IdleConnections&) = delete;
  IdleConnections& operator=(const IdleConnections&) = delete;

 private:
  void close_all() {
    for (const int file : files_) close(file);
    files_.clear();
  }

  std::vector<int> files_;
};

class HttpRound {
 public:
  HttpRound(HttpClient& client, const HttpTrafficOptions& options, uint64_t round)
      : client_(client), options_(options), sent_(options.requests.size()) {
    for (size_t i = 0; i < sent_.size(); ++i)
      bodies_.push_back(body_of(options.requests[i], options.seed + round * sent_.size() + i));
  }

  const std::vector<Sent>& run() {
    start_ = HttpClock::now();
    std::unique_lock lock(mutex_);
    for (size_t next = 0; next < sent_.size() && failure_.empty(); ++next) {
      const auto due = start_ + std::chrono::duration_cast<HttpClock::duration>(
                                    std::chrono::duration<double>(options_.requests[next].arrival_s));
      if (options_.concurrency > 0)
        changed_.wait(lock, [&] { return open_ < options_.concurrency || !failure_.empty(); });
      else
        changed_.wait_until(lock, due, [&] { return !failure_.empty(); });
      if (!failure_.empty()) break;
      ++open_;
      sent_[next].arrival = options_.concurrency > 0 ? HttpClock::now() : due;
      lock.unlock();
      client_.call(call_of(next));
      lock.lock();
    }
    changed_.wait(lock, [&] { return open_ == 0; });
    if (!failure_.empty()) throw Error({.doing = "serve a request at", .object = options_.url, .detail = failure_});
    return sent_;
  }
  HttpClock::time_point start() const { return start_; }

 private:
  std::string body_of(const PlannedRequest& planned, uint64_t key) const {
    return fmt::format(R"({{"model":{},"prompt":[{}],"max_tokens":{},"ignore_eos":true,"stream":true,)"
                       R"("stream_options":{{"include_usage":true}}{}}})",
                       nlohmann::json(options_.model).dump(),
                       fmt::join(random_prompt(planned.prompt, options_.vocab, key), ","), planned.output,
                       options_.fields);
  }

  HttpCall call_of(size_t index) {
    HttpCall call{.path = "/v1/completions", .body = std::move(bodies_[index])};
    if (!options_.api_key.empty()) call.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
    call.on_event = [this, index](std::string_view data, HttpClock::time_point arrived) {
      take_event(sent_[index], data, arrived);
    };
    call.on_done = [this](const HttpAnswer& answer) { done(answer); };
    return call;
  }

  // Called on the client's thread, the only writer of `sent` while the request is open.
  void take_event(Sent& sent, std::string_view data, HttpClock::time_point arrived) {
    if (data == "[DONE]") return;
    if (data.find(R"("choices":[{)") != std::string_view::npos) {
      sent.events.push_back(arrived);
    } else if (data.starts_with(R"({"error")")) {
      fail(std::string(data));
    } else {
      const auto json = nlohmann::json::parse(data, nullptr, false);
      if (json.is_object() && json.contains("usage") && json["usage"].is_object())
        sent.tokens = json["usage"].value("completion_tokens", int64_t{0});
    }
  }

  void done(const HttpAnswer& answer) {
    if (answer.status != 200 || !answer.failure.empty())
      fail(fmt::format("status {}: {}", answer.status, answer.failure.empty() ? answer.body : answer.failure));
    const std::lock_guard lock(mutex_);
    --open_;
    changed_.notify_one();
  }

  void fail(std::string why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = std::move(why);
    changed_.notify_one();
  }

  HttpClient& client_;
  const HttpTrafficOptions& options_;
  std::vector<std::string> bodies_;
  std::vector<Sent> sent_;
  HttpClock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t open_ = 0;
  std::string failure_;
};

}  // namespace

HttpTrafficFigures measure_http_traffic(const HttpTrafficOptions& options) {
  const HttpPlace place = HttpPlace::of_url(options.url);
  HttpClient client(place);
  const IdleConnections idle(place, options.idle_connections);
  HttpTrafficFigures figures;
  std::vector<double> first, between, whole;
  for (int round = 0; round < options.rounds; ++round) {
    HttpRound one(client, options, static_cast<uint64_t>(round));
    HttpClock::time_point last = HttpClock::now();
    for (const Sent& sent : one.run()) {
      ++figures.requests;
      figures.output_tokens += sent.tokens;
      figures.events += std::ssize(sent.events);
      if (sent.events.empty()) continue;
      first.push_back(ms_from_to(sent.arrival, sent.events.front()));
      for (size_t i = 1; i < sent.events.size(); ++i) between.push_back(ms_from_to(sent.events[i - 1], sent.events[i]));
      whole.push_back(ms_from_to(sent.arrival, sent.events.back()));
      last = std::max(last, sent.events.back());
    }
    for (const PlannedRequest& planned : options.requests) figures.prompt_tokens += planned.prompt;
    figures.seconds += 1e-3 * ms_from_to(one.start(), last);
  }
  figures.first_token_ms = tail_of(std::move(first));
  figures.between_tokens_ms = tail_of(std::move(between));
  figures.request_ms = tail_of(std::move(whole));
  return figures;
}

}  // namespace nodewright
