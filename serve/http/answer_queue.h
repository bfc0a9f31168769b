// What a reply has been given and its connection has not sent: the one place where the threads that answer meet the I/O
// thread of the connection. No sockets.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "serve/http/http_server.h"

namespace nodewright {

// A connection's I/O thread, as its answers see it. Both may be called from any thread and do not block.
class AnswerHost {
 public:
  virtual ~AnswerHost() = default;
  // The connection takes what there is, soon.
  virtual void wake() = 0;
  // Calls `call` on the I/O thread, or at once if that has ended.
  virtual void post(std::function<void()> call) = 0;
};

// What the request says about the form of its answer.
struct AnswerForm {
  bool chunked = true;     // the client knows chunks: HTTP/1.1
  bool head_only = false;  // HEAD
  std::string headers;     // whole lines, of every answer to it
};

// The answer of one request. Thread-safe.
class AnswerQueue {
 public:
  // `queue_bytes` as in HttpLimits: the stream is cut when a piece comes while more than this waits.
  AnswerQueue(AnswerForm form, size_t queue_bytes, std::shared_ptr<AnswerHost> host);

  // The methods of HttpReply.
  void send(int status, std::string_view content_type, std::string body, const HttpHeaders& more);
  void begin_events(const HttpHeaders& more);
  void write(std::string_view events);
  void end();
  void when_gone(std::function<void()> told);

  // No answer will come: a 500 with this message, if nothing was sent; a stream that did not end is cut.
  void fail(std::string_view message);

  // The connection's side, on its I/O thread. take() appends what there is to `out`, as it goes over the wire; what it
  // appended before has left by then. `close`: the connection will be closed after the answer.
  enum class Taken { more_comes, all, cut };
  Taken take(std::string& out, bool close);
  // Whether take() would say cut: for a connection that cannot send what it took before.
  bool is_cut();
  // The client is gone, or cut off: tells it, once, unless the answer was complete.
  void lose();

 private:
  enum class Stage { nothing, whole, stream, ended };

  void require(Stage stage, const char* doing) const;
  void wake_once(std::unique_lock<std::mutex>& lock);
  void cut(std::unique_lock<std::mutex>& lock);
  void append_head(std::string& out, bool close);

  const AnswerForm form_;
  const size_t queue_bytes_;
  const std::shared_ptr<AnswerHost> host_;

  std::mutex mutex_;
  Stage stage_ = Stage::nothing;
  bool head_taken_ = false;
  bool woken_ = false;  // and has not taken since
  bool cut_ = false;    // no more of this stream
  bool lost_ = false;   // the connection is gone
  int status_ = 200;
  std::string content_type_;
  HttpHeaders more_;
  std::string waiting_;  // the body, or events
  size_t leaving_ = 0;   // bytes of events that the last take() took
  std::function<void()> told_;
};

}  // namespace nodewright
