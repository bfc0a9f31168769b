// The queue between a reply and its connection: framing, order of calls, limits, callbacks.
#include "serve/http/answer_queue.h"

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace nodewright {
namespace {

using Taken = AnswerQueue::Taken;

struct CountingHost : AnswerHost {
  void wake() override { ++wakes; }
  void post(std::function<void()> call) override { call(); }
  int wakes = 0;
};

struct QueueUnderTest {
  explicit QueueUnderTest(AnswerForm form = {}, size_t queue_bytes = 1000)
      : queue(std::move(form), queue_bytes, host) {}
  std::string take(bool close = false) {
    std::string out;
    last = queue.take(out, close);
    return out;
  }
  std::shared_ptr<CountingHost> host = std::make_shared<CountingHost>();
  AnswerQueue queue;
  Taken last = Taken::more_comes;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(AnswerQueue, AWholeAnswerHasItsLength) {
  QueueUnderTest test({.headers = "Vary: Origin\r\n"});
  test.queue.send(404, "text/plain", "no", {{"X-A", "1"}});
  const std::string text = test.take();
  EXPECT_EQ(test.last, Taken::all);
  EXPECT_TRUE(text.starts_with("HTTP/1.1 404 Not Found\r\nDate: ")) << text;
  EXPECT_TRUE(has(text, "\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nVary: Origin\r\nX-A: 1\r\n\r\nno"))
      << text;
  EXPECT_FALSE(has(text, "Connection")) << text;
  EXPECT_EQ(test.host->wakes, 1);
}

TEST(AnswerQueue, PiecesThatWaitLeaveAsOneChunk) {
  QueueUnderTest test;
  test.queue.begin_events({});
  test.queue.write("data: 1\n\n");
  test.queue.write("data: 2\n\n");
  EXPECT_EQ(test.host->wakes, 1) << "one wake-up until the connection takes";
  const std::string text = test.take();
  EXPECT_EQ(test.last, Taken::more_comes);
  EXPECT_TRUE(has(text, "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n")) << text;
  EXPECT_TRUE(has(text, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n")) << text;
  EXPECT_TRUE(text.ends_with("\r\n\r\n12\r\ndata: 1\n\ndata: 2\n\n\r\n")) << text;
  test.queue.write("data: 3\n\n");
  EXPECT_EQ(test.host->wakes, 2);
  EXPECT_EQ(test.take(), "9\r\ndata: 3\n\n\r\n");
  test.queue.end();
  EXPECT_EQ(test.take(), "0\r\n\r\n");
  EXPECT_EQ(test.last, Taken::all);
}

TEST(AnswerQueue, AnOldClientGetsNoChunksAndHeadNoBody) {
  QueueUnderTest old({.chunked = false});
  old.queue.begin_events({});
  old.queue.write("data: 1\n\n");
  old.queue.end();
  const std::string text = old.take(true);
  EXPECT_TRUE(text.ends_with("\r\n\r\ndata: 1\n\n")) << text;
  EXPECT_TRUE(has(text, "Connection: close\r\n")) << text;
  EXPECT_FALSE(has(text, "chunked")) << text;

  QueueUnderTest head({.head_only = true});
  head.queue.send(200, "text/plain", "body", {});
  const std::string head_text = head.take();
  EXPECT_TRUE(has(head_text, "Content-Length: 4\r\n") && head_text.ends_with("\r\n\r\n")) << head_text;

  QueueUnderTest head_of_stream({.head_only = true});
  head_of_stream.queue.begin_events({});
  head_of_stream.queue.write("data: 1\n\n");
  head_of_stream.queue.end();
  EXPECT_TRUE(head_of_stream.take().ends_with("\r\n\r\n"));
  EXPECT_EQ(head_of_stream.last, Taken::all);
}

TEST(AnswerQueue, NoContentHasNoLength) {
  QueueUnderTest test;
  test.queue.send(204, "", "", {});
  const std::string text = test.take();
  EXPECT_FALSE(has(text, "Content-")) << text;
}

TEST(AnswerQueue, LineBreaksInHeadersBecomeSpaces) {
  QueueUnderTest test;
  test.queue.send(200, "text/plain\r\nX-Evil: 1", "", {{"X-A", "1\r\n\r\nbody"}, {"X\nB", "2"}});
  const std::string text = test.take();
  EXPECT_TRUE(has(text, "Content-Type: text/plain  X-Evil: 1\r\n")) << text;
  EXPECT_TRUE(has(text, "X-A: 1    body\r\nX B: 2\r\n")) << text;
}

TEST(AnswerQueue, CallsInAnotherOrderAreErrors) {
  QueueUnderTest test;
  EXPECT_THROW(test.queue.write("x"), Error);
  EXPECT_THROW(test.queue.end(), Error);
  EXPECT_THROW(test.queue.send(199, "", "", {}), Error);
  EXPECT_THROW(test.queue.send(600, "", "", {}), Error);
  test.queue.begin_events({});
  EXPECT_THROW(test.queue.begin_events({}), Error);
  EXPECT_THROW(test.queue.send(200, "", "", {}), Error);
  test.queue.end();
  EXPECT_THROW(test.queue.end(), Error);
  try {
    test.queue.write("x");
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cannot write events 'HttpReply': it has been given a stream that ended, expected a stream of events");
  }
}

TEST(AnswerQueue, CutsTheStreamOfAReaderThatIsTooSlow) {
  QueueUnderTest test({}, 100);
  test.queue.begin_events({});
  test.queue.write(std::string(90, 'a'));
  test.take();
  test.queue.write(std::string(11, 'b'));  // 101 wait: those taken have not left
  EXPECT_EQ(test.host->wakes, 2);
  EXPECT_FALSE(test.queue.is_cut());
  test.queue.write("c");
  EXPECT_TRUE(test.queue.is_cut());
  EXPECT_EQ(test.host->wakes, 3) << "the connection, which cannot send, has to know";
  test.take();
  EXPECT_EQ(test.last, Taken::cut);

  QueueUnderTest quick({}, 100);
  quick.queue.begin_events({});
  for (int i = 0; i < 10; ++i) {
    quick.queue.write(std::string(90, 'a'));
    quick.take();
    EXPECT_EQ(quick.last, Taken::more_comes);
    quick.take();  // it comes back for more once all has left
  }
}

TEST(AnswerQueue, TellsOnceThatTheClientIsGone) {
  QueueUnderTest test;
  int told = 0;
  test.queue.when_gone([&] { ++told; });
  test.queue.begin_events({});
  test.queue.lose();
  test.queue.lose();
  EXPECT_EQ(told, 1);
  test.queue.write("x");
  test.queue.end();
  EXPECT_EQ(test.host->wakes, 1) << "nothing is sent to who is gone";

  QueueUnderTest late;
  late.queue.lose();
  late.queue.when_gone([&] { ++told; });
  late.queue.when_gone(nullptr);
  EXPECT_EQ(told, 2);
}

TEST(AnswerQueue, ForgetsWhomToTellWhenTheAnswerIsComplete) {
  const auto owned = std::make_shared<int>(0);
  QueueUnderTest stream;
  stream.queue.when_gone([owned] { ++*owned; });
  stream.queue.when_gone([owned] { *owned += 10; });
  EXPECT_EQ(owned.use_count(), 2) << "the later replaces the earlier";
  stream.queue.begin_events({});
  stream.queue.end();
  EXPECT_EQ(owned.use_count(), 1);
  stream.queue.lose();

  QueueUnderTest whole;
  whole.queue.when_gone([owned] { ++*owned; });
  whole.queue.send(200, "", "", {});
  EXPECT_EQ(owned.use_count(), 1);
  whole.queue.lose();
  EXPECT_EQ(*owned, 0);
}

TEST(AnswerQueue, AFailureIsA500OrCutsTheStream) {
  QueueUnderTest test;
  test.queue.fail("no \"memory\" \xff");
  const std::string text = test.take();
  EXPECT_TRUE(text.starts_with("HTTP/1.1 500 ")) << text;
  EXPECT_TRUE(has(text, R"("message":"no \"memory\" )")) << text;

  QueueUnderTest stream;
  stream.queue.begin_events({});
  stream.queue.fail("x");
  stream.take();
  EXPECT_EQ(stream.last, Taken::cut);

  QueueUnderTest done;
  done.queue.send(200, "", "", {});
  done.queue.fail("x");
  EXPECT_TRUE(done.take().starts_with("HTTP/1.1 200"));
}

}  // namespace
}  // namespace nodewright
