// A call of the API whose client waits at an HTTP connection: the engine's updates in, events or one body out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/api/answer/api_call.h"
#include "serve/http/http_server.h"
#include "serve/replicas/replicas.h"

namespace nodewright {

// An answer that was sent, for the access log.
struct AccessLine {
  std::string peer, method, path, request_id;
  int status = 0;      // 499: the client had gone
  double seconds = 0;  // from the request's arrival to the end of the answer
  CallCounts counts;   // of calls
  bool is_call = false;
};

using AccessLog = std::function<void(const AccessLine&)>;

class ServedCall : public Listener, public std::enable_shared_from_this<ServedCall> {
 public:
  // `told`: the call's line, but for what the answer is like; `log` gets it when the call ends. What they refer to, and
  // the replicas, must outlive this.
  ServedCall(std::unique_ptr<ApiCall> call, std::shared_ptr<HttpReply> reply, Replicas& replicas, AccessLine line,
             const AccessLog& log, uint64_t client = 0);

  // Submits the call; where it is not accepted the client gets the error at once.
  void begin();

  void refused(const std::string& reason) override;
  void updated(std::vector<OutputUpdate> updates) override;

 private:
  void tell(const std::vector<OutputUpdate>& updates);
  void fail(const ApiError& error);
  void end(int status);

  std::unique_ptr<ApiCall> call_;
  std::shared_ptr<HttpReply> reply_;
  Replicas& replicas_;
  AccessLine line_;
  const AccessLog& log_;
  uint64_t client_;  // of its submissions
  std::chrono::steady_clock::time_point arrived_ = std::chrono::steady_clock::now();
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);  // the client is
  std::atomic<Replicas::Ticket> ticket_ = 0;                                              // 0: not submitted yet
  std::atomic<bool> is_over_ = false;
  bool has_begun_ = false;
};

// The error for the client where the loop accepts nothing: 429 or 503, with the time to try again.
ApiError not_accepted(Admission admission);
// {"x-request-id", ...}, and Retry-After of the two.
HttpHeaders answer_headers(const std::string& request_id, int status = 200);

}  // namespace nodewright
