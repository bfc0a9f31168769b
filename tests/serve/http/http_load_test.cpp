// Many clients at once, threads that answer, and the server's end in the midst of it.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "serve/http/http_server.h"
#include "tests/serve/http/serving_fixture.h"

namespace nodewright {
namespace {

bool holds_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A thread that answers every request with a stream of events, one a step for all of them, as an engine does.
class SteppingThread {
 public:
  explicit SteppingThread(int events) : events_(events), thread_([this] { step(); }) {}
  ~SteppingThread() {
    ended_ = true;
    thread_.join();
  }
  HttpHandler handler() {
    return [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      auto stream = std::make_shared<Stream>(Stream{std::move(request.path), std::move(reply), counted_});
      stream->reply->when_gone([this, gone = std::weak_ptr<Stream>(stream)] {
        ++told_;
        if (const auto there = gone.lock()) there->gone = true;
      });
      const std::lock_guard lock(mutex_);
      streams_.push_back(std::move(stream));
    };
  }
  int told() const { return told_; }
  int completed() const { return completed_; }
  // Streams that it still holds.
  long held() const { return counted_.use_count() - 1; }

 private:
  struct Stream {
    std::string path;
    std::shared_ptr<HttpReply> reply;
    std::shared_ptr<int> counted;
    int written = 0;
    std::atomic<bool> gone{false};
    Stream(std::string p, std::shared_ptr<HttpReply> r, std::shared_ptr<int> c)
        : path(std::move(p)), reply(std::move(r)), counted(std::move(c)) {}
    Stream(Stream&& other) noexcept : Stream(std::move(other.path), std::move(other.reply), std::move(other.counted)) {}
  };

  void step() {
    while (!ended_) {
      std::vector<std::shared_ptr<Stream>> streams;
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(streams_, [&](const auto& stream) { return stream->gone || stream->written > events_; });
        streams = streams_;
      }
      for (const auto& stream : streams) write(*stream);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void write(Stream& stream) {
    if (stream.written == 0) stream.reply->begin_events();
    if (stream.written == events_) {
      stream.reply->end();
      ++completed_;
    } else {
      stream.reply->write("data: " + stream.path + " " + std::to_string(stream.written) + "\n\n");
    }
    ++stream.written;
  }

  const int events_;
  std::atomic<bool> ended_{false};
  std::atomic<int> told_{0}, completed_{0};
  std::shared_ptr<int> counted_ = std::make_shared<int>();
  std::mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::thread thread_;
};

// The events of a stream, out of their chunks.
std::string without_chunks(std::string answer) {
  std::string events;
  answer.erase(0, answer.find("\r\n\r\n") + 4);
  for (;;) {
    const size_t line = answer.find("\r\n");
    const size_t bytes = std::stoul(answer.substr(0, line), nullptr, 16);
    if (bytes == 0) return events;
    events += answer.substr(line + 2, bytes);
    answer.erase(0, line + 2 + bytes + 2);
  }
}

std::string expected_events(const std::string& path, int events) {
  std::string text;
  for (int i = 0; i < events; ++i) text += "data: " + path + " " + std::to_string(i) + "\n\n";
  return text;
}

TEST(HttpLoad, ThreeHundredStreamsAtOnceGetEachItsEventsInOrder) {
  for (const int io_threads : {1, 3}) {
    SteppingThread engine(50);
    HttpOptions options = any_port();
    options.io_threads = io_threads;
    HttpServer server(options, engine.handler());
    server.start();
    std::vector<RawClient> clients;
    for (int i = 0; i < 300; ++i) {
      clients.emplace_back(server.port());
      clients.back().say(get("/" + std::to_string(i)));
    }
    for (int i = 0; i < 300; ++i) {
      EXPECT_EQ(without_chunks(clients[i].hear_until("0\r\n\r\n")), expected_events("/" + std::to_string(i), 50));
    }
    EXPECT_TRUE(eventually([&] { return server.open_requests() == 0 && engine.held() == 0; }));
    EXPECT_EQ(engine.told(), 0);
    EXPECT_EQ(engine.completed(), 300);
  }
}

TEST(HttpLoad, AThousandClientsThatHangUpDisturbNobody) {
  const size_t descriptors = open_descriptors();
  {
    SteppingThread engine(400);
    HttpServer server(any_port(), engine.handler());
    server.start();
    std::vector<RawClient> steady;
    for (int i = 0; i < 20; ++i) {
      steady.emplace_back(server.port());
      steady.back().say(get("/steady"));
    }
    std::mt19937 random(7);
    const std::string request = post("/", std::string(300, 'a'));
    std::vector<RawClient> fickle;
    for (int i = 0; i < 1000; ++i) {
      fickle.emplace_back(server.port());
      fickle.back().say(
          std::string_view(request).substr(0, random() % 2 == 0 ? request.size() : random() % request.size()));
      if (fickle.size() < 50) continue;
      const size_t which = random() % fickle.size();
      random() % 2 == 0 ? fickle[which].reset() : fickle[which].hang_up();
      std::swap(fickle[which], fickle.back());
      fickle.pop_back();
    }
    for (RawClient& client : fickle) client.hang_up();
    for (RawClient& client : steady) {
      EXPECT_EQ(without_chunks(client.hear_until("0\r\n\r\n")), expected_events("/steady", 400));
    }
    EXPECT_TRUE(eventually([&] { return server.open_requests() == 0 && engine.held() == 0; }))
        << server.open_requests() << " open, " << engine.held() << " held";
    EXPECT_GT(engine.told(), 100);
    steady.clear();
    EXPECT_TRUE(eventually([&] { return open_descriptors() <= descriptors + 6; }))
        << open_descriptors() << " of " << descriptors;
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(HttpLoad, WhoStopsAcceptingFinishesWhatIsOpen) {
  OpenRequests open;
  HttpServer server(any_port(), open.handler());
  server.start();
  const uint16_t port = server.port();
  RawClient idle(port), stream(port), waiting(port), half(port);
  const std::string half_request = get("/half");
  stream.say(get("/stream"));
  const OpenRequests::One to_stream = open.next();
  to_stream.reply->begin_events();
  stream.hear_until("\r\n\r\n");
  waiting.say(get("/waiting"));
  const OpenRequests::One to_waiting = open.next();
  half.say(half_request.substr(0, 10));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));

  server.stop_accepting();
  EXPECT_THROW(RawClient another(port), std::runtime_error);
  EXPECT_EQ(idle.hear_to_end(), "");
  EXPECT_EQ(server.open_requests(), 2u);
  half.say(half_request.substr(10));
  open.next().reply->send(200, "", "half");
  EXPECT_TRUE(holds_text(half.hear_to_end(), "Connection: close\r\n"));
  to_waiting.reply->send(200, "", "answer");
  EXPECT_TRUE(holds_text(waiting.hear_to_end(), "Connection: close\r\n"));
  to_stream.reply->write("data: 1\n\n");
  to_stream.reply->end();
  EXPECT_EQ(stream.hear_to_end(), "9\r\ndata: 1\n\n\r\n0\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return server.open_requests() == 0; }));
  server.stop_accepting();
  server.stop();
  server.stop();
  server.stop_accepting();
}

TEST(HttpLoad, AHandlerMayStopAccepting) {
  std::unique_ptr<HttpServer> server;
  HttpOptions options = any_port();
  options.io_threads = 2;
  server = std::make_unique<HttpServer>(options, [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    server->stop_accepting();
    reply->send(200, "", "stopping");
  });
  server->start();
  RawClient one(server->port());
  one.say(get("/"));
  EXPECT_TRUE(holds_text(one.hear_to_end(), "Connection: close\r\n"));
}

TEST(HttpLoad, StopTellsTheRepliesThatAreOpenAndTheyMayOutliveTheServer) {
  OpenRequests open;
  std::atomic<int> told{0};
  std::vector<OpenRequests::One> kept;
  const auto owned = std::make_shared<int>();
  {
    HttpServer server(any_port(), [&open, owned, handler = open.handler()](HttpRequest request, auto reply) {
      handler(std::move(request), std::move(reply));
    });
    server.start();
    std::vector<RawClient> clients;
    for (int i = 0; i < 10; ++i) {
      clients.emplace_back(server.port());
      clients.back().say(get("/"));
      kept.push_back(open.next());
      kept.back().reply->when_gone([&] { ++told; });
      if (i % 2 == 0) kept.back().reply->begin_events();
    }
    server.stop();
    EXPECT_EQ(told, 10);
    EXPECT_EQ(server.open_requests(), 0u);
  }
  EXPECT_EQ(owned.use_count(), 1) << "the handler is gone though replies are there";
  for (int i = 0; i < 10; ++i) {
    if (i % 2 == 0) {
      kept[i].reply->write("x");
      kept[i].reply->end();
    } else {
      kept[i].reply->when_gone([&] { ++told; });
      kept[i].reply->send(200, "", "x");
    }
  }
  EXPECT_EQ(told, 15) << "after stop() at once";
}

TEST(HttpLoad, IsDestroyedUnderLoad) {
  const size_t descriptors = open_descriptors();
  for (int round = 0; round < 10; ++round) {
    SteppingThread engine(1000000);
    std::atomic<bool> ended{false};
    HttpOptions options = any_port();
    options.io_threads = 1 + round % 3;
    auto server = std::make_unique<HttpServer>(options, engine.handler());
    server->start();
    const uint16_t port = server->port();
    std::thread clients([&] {
      std::vector<RawClient> open;
      while (!ended) {
        try {
          open.emplace_back(port);
          open.back().try_say(get("/"));
          if (open.size() > 60) open.erase(open.begin());
        } catch (const std::exception&) {  // the server is gone
        }
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 7 * round));
    if (round % 2 == 0) server->stop_accepting();
    server.reset();
    EXPECT_TRUE(eventually([&] { return engine.held() == 0; }));
    ended = true;
    clients.join();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(HttpLoad, AServerThatNeverStartedIsDestroyed) {
  const size_t descriptors = open_descriptors();
  {
    HttpServer server(any_port(), echo);
    RawClient waits(server.port());
    server.stop_accepting();
    EXPECT_EQ(waits.hear_to_end(), "");
  }
  { HttpServer server(any_port(), echo); }
  EXPECT_EQ(open_descriptors(), descriptors);
}

// The last reference to a reply may go on any thread, while its client hangs up.
TEST(HttpLoad, ManyThreadsAnswerOneConnectionAfterAnother) {
  OpenRequests open;
  HttpServer server(any_port(), open.handler());
  server.start();
  std::atomic<bool> ended{false};
  std::vector<std::thread> answering;
  for (int i = 0; i < 4; ++i) {
    answering.emplace_back([&, i] {
      while (!ended) {
        if (open.count() == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
          continue;
        }
        try {
          const OpenRequests::One one = open.next();
          if (i == 0) continue;  // drops it
          one.reply->begin_events();
          std::thread other([&] { one.reply->write("data: other\n\n"); });
          one.reply->write("data: one\n\n");
          other.join();
          one.reply->end();
        } catch (const std::runtime_error&) {  // another thread took it
        }
      }
    });
  }
  std::vector<RawClient> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(server.port());
    clients.back().say(get("/"));
  }
  for (int i = 0; i < 200; i += 2) clients[i].hang_up();
  for (int i = 1; i < 200; i += 2) {
    const std::string head = clients[i].hear_until("\r\n\r\n");
    if (head.starts_with("HTTP/1.1 500")) continue;
    const std::string body = clients[i].hear_until("0\r\n\r\n");
    EXPECT_TRUE(holds_text(body, "data: other\n\n") && holds_text(body, "data: one\n\n")) << body;
  }
  EXPECT_TRUE(eventually([&] { return server.open_requests() == 0; }));
  ended = true;
  for (std::thread& thread : answering) thread.join();
}

}  // namespace
}  // namespace nodewright
