// A connection of the server: its requests one after another, and their answers. Belongs to a ConnectionLoop.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "serve/http/answer_queue.h"
#include "serve/http/connection_loop.h"
#include "serve/http/http_server.h"
#include "serve/http/messages/request_parser.h"
#include "serve/http/sockets/io_loop.h"

namespace nodewright {

// reading -> answering -> reading or leaving -> closed. While it answers, it reads on: that is how a hang-up is
// noticed. Leaving, it has sent its last bytes and waits for the client to have read them: closing at once with bytes
// unread would make the kernel take the answer back (a reset).
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Takes over a socket that the system has accepted. Throws Error if it cannot be watched.
  Connection(std::shared_ptr<ConnectionLoop> loop, int descriptor);

  enum class Place { usual, kept, none };  // kept: for HttpOptions::kept_paths alone; none: refused with 503

  void start(Place place);
  void flush() { guarded(&Connection::send_what_there_is); }
  void check_deadline(IoClock::time_point now);
  IoClock::time_point deadline() const { return deadline_; }
  // Nothing is lost with it but a connection.
  bool may_make_room() const { return is_idle() || (stage_ == Stage::leaving && sent_ >= out_.size()); }
  bool is_idle() const { return stage_ == Stage::reading && parser_.state() == RequestParser::State::idle; }
  void close();

 private:
  enum class Stage { reading, answering, leaving, closed };

  void guarded(void (Connection::*step)());
  void watch_reads();
  void read_what_there_is();
  void receive(std::string_view bytes);
  size_t parse(std::string_view bytes);
  void parse_unread();
  bool charge_body();
  void hand_over();
  void call_handler(HttpRequest request);
  bool may_ask_for(std::string_view path) const;
  void refuse(int status, std::string_view sentence);
  void refuse(HttpRequest seen, const HttpRefusal& refusal);
  std::string fixed_lines(std::string_view origin) const;
  void end_of_reads();
  void look_for_hang_up(IoClock::time_point now);
  void send_what_there_is();
  bool refill();
  void finish_answer();
  void leave();
  void cut_off();
  // A client that sends on while it is answered has to wait; its hang-up is then noticed by writing.
  bool is_full() const { return stage_ == Stage::answering && unread_.size() - parsed_ >= kReadBytes; }
  void wait_for(std::chrono::seconds time) { deadline_ = IoClock::now() + time; }

  const std::shared_ptr<ConnectionLoop> loop_;
  Serving& serving_;
  const HttpLimits& limits_;
  WatchedDescriptor socket_;
  RequestParser parser_;
  std::shared_ptr<AnswerHost> host_;
  std::string peer_;
  Place place_ = Place::usual;
  Stage stage_ = Stage::closed;
  IoClock::time_point deadline_ = IoClock::time_point::max();
  bool reads_watched_ = false, writes_watched_ = false;
  std::string unread_;                     // came while an answer was under way, or is the start of something
  size_t parsed_ = 0;                      // of unread_
  std::shared_ptr<BodyShare> body_share_;  // of the request that is being read
  // The client has shut down its sending side, or both: what is sent to it tells.
  bool reads_ended_ = false, probed_ = false;
  IoClock::time_point ended_at_;  // or when the answer was begun, whichever was later
  std::shared_ptr<AnswerQueue> answer_;
  bool head_only_ = false;     // HEAD
  bool answer_begun_ = false;  // a byte of it is on its way
  bool all_taken_ = false;     // of answer_
  bool close_after_ = false;
  std::string out_;  // under way to the socket
  size_t sent_ = 0;  // of out_
};

}  // namespace nodewright
