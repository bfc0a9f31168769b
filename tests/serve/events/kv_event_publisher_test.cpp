// The publisher before readers of its own kind: sockets of the same library, as a router has them.
#include "serve/events/kv_event_publisher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "serve/events/kv_event_frames.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using Frames = std::vector<std::string>;

PageEvent stored_page(uint64_t page, int tokens = 2) {
  return {.pages = {page}, .tokens = std::vector<int32_t>(static_cast<size_t>(tokens), 1)};
}

// A socket with a context of its own.
class Reader {
 public:
  Reader(int type, const std::string& endpoint) : socket_(zmq_.socket(context_, type)) {
    const int linger = 0, none = 0, wait_ms = 10'000;
    zmq_.setsockopt(socket_, zmq::kLinger, &linger, sizeof(linger));
    zmq_.setsockopt(socket_, zmq::kReceiveLimit, &none, sizeof(none));
    zmq_.setsockopt(socket_, zmq::kReceiveTimeout, &wait_ms, sizeof(wait_ms));
    EXPECT_EQ(zmq_.connect(socket_, endpoint.c_str()), 0) << zmq_.failure();
  }
  ~Reader() {
    zmq_.close(socket_);
    zmq_.ctx_term(context_);
  }

  void subscribe(const std::string& topic) { zmq_.setsockopt(socket_, zmq::kSubscribe, topic.data(), topic.size()); }
  void send(const Frames& frames) {
    for (size_t i = 0; i < frames.size(); ++i)
      zmq_.send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? zmq::kSendMore : 0);
  }
  // Empty after ten seconds without a message, or at once.
  Frames receive(int flags = 0) {
    Frames frames;
    for (int more = 1; more != 0;) {
      std::string frame(1 << 16, '\0');
      const int size = zmq_.recv(socket_, frame.data(), frame.size(), flags);
      if (size < 0) return {};
      frame.resize(static_cast<size_t>(size));
      frames.push_back(std::move(frame));
      size_t bytes = sizeof(more);
      zmq_.getsockopt(socket_, zmq::kMore, &more, &bytes);
    }
    return frames;
  }

 private:
  ZmqLibrary zmq_ = ZmqLibrary::load();
  void* context_ = zmq_.ctx_new();
  void* socket_;
};

KvEventOptions on_any_ports() {
  return {.endpoint = "tcp://127.0.0.1:*",
          .replay_endpoint = "tcp://127.0.0.1:*",
          .topic = "kv@pod@model",
          .page_tokens = 2};
}

// Publishes until the reader, whose subscription is on its way, has one; the batches so far.
uint64_t publish_until_read(KvEventPublisher& publisher, Reader& reader) {
  for (uint64_t count = 1; count < 1000; ++count) {
    EXPECT_TRUE(publisher.publish({stored_page(count)}));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!reader.receive(zmq::kDontWait).empty()) {
      while (!reader.receive(zmq::kDontWait).empty()) continue;
      return count;
    }
  }
  ADD_FAILURE() << "nothing arrived";
  return 0;
}

std::string page_of(const std::string& payload) {
  const nlohmann::json batch = nlohmann::json::from_msgpack(payload);
  return batch.at(1).at(0).at(1).at(0).dump();
}

TEST(KvEventPublisher, SendsEachBatchAsTopicNumberAndPayload) {
  KvEventPublisher publisher(on_any_ports());
  Reader reader(zmq::kSub, publisher.endpoint());
  reader.subscribe("kv@");
  uint64_t next = publish_until_read(publisher, reader);
  const double before = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (uint64_t i = 0; i < 500; ++i) publisher.publish({stored_page(1000 + i)});
  for (uint64_t i = 0; i < 500; ++i, ++next) {
    const Frames frames = reader.receive();
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[0], "kv@pod@model");
    EXPECT_EQ(frames[1], sequence_frame(next));
    EXPECT_EQ(page_of(frames[2]), std::to_string(1000 + i));
    const double sent = nlohmann::json::from_msgpack(frames[2]).at(0).get<double>();
    EXPECT_TRUE(sent >= before && sent < before + 60) << sent;
  }
}

TEST(KvEventPublisher, SendsAgainWhatAReaderMissed) {
  KvEventOptions options = on_any_ports();
  options.replay_batches = 8;
  KvEventPublisher publisher(options);
  Reader reader(zmq::kSub, publisher.endpoint()), replays(zmq::kDealer, publisher.replay_endpoint());
  reader.subscribe("kv@");
  const uint64_t first = publish_until_read(publisher, reader);
  for (uint64_t i = 0; i < 20; ++i) publisher.publish({stored_page(1000 + i)});
  for (uint64_t i = 0; i < 20; ++i) ASSERT_FALSE(reader.receive().empty());  // then all have been sent

  replays.send({"", "no number"});  // ignored
  replays.send({"", sequence_frame(first + 15), "more"});
  replays.send({"", sequence_frame(first + 15)});
  for (uint64_t i = 15; i < 20; ++i) {
    const Frames frames = replays.receive();
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[0], "");
    EXPECT_EQ(frames[1], sequence_frame(first + i));
    EXPECT_EQ(page_of(frames[2]), std::to_string(1000 + i));
  }
  EXPECT_EQ(replays.receive(), (Frames{"", sequence_frame(UINT64_MAX), ""}));

  replays.send({"", sequence_frame(0)});  // further back than it remembers
  for (uint64_t i = 12; i < 20; ++i) EXPECT_EQ(replays.receive().at(1), sequence_frame(first + i));
  EXPECT_EQ(replays.receive(), (Frames{"", sequence_frame(UINT64_MAX), ""}));
}

TEST(KvEventPublisher, DropsWhatItHasNoRoomForAndLeavesAGapInTheNumbers) {
  KvEventOptions options = on_any_ports();
  options.queue_bytes = 1 << 20;
  KvEventPublisher publisher(options);
  Reader reader(zmq::kSub, publisher.endpoint());
  reader.subscribe("kv@");
  const uint64_t first = publish_until_read(publisher, reader);
  EXPECT_FALSE(publisher.publish({stored_page(1, 1 << 18)}));  // alone it is larger
  EXPECT_TRUE(publisher.publish({stored_page(77)}));
  const Frames frames = reader.receive();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1], sequence_frame(first + 1));
  EXPECT_EQ(page_of(frames[2]), "77");
}

TEST(KvEventPublisher, SendsWhatIsQueuedBeforeItEnds) {
  auto publisher = std::make_unique<KvEventPublisher>(on_any_ports());
  Reader reader(zmq::kSub, publisher->endpoint());
  reader.subscribe("");
  const uint64_t first = publish_until_read(*publisher, reader);
  for (uint64_t i = 0; i < 300; ++i) publisher->publish({stored_page(i)});
  publisher.reset();
  for (uint64_t i = 0; i < 300; ++i) ASSERT_EQ(reader.receive().at(1), sequence_frame(first + i));
}

TEST(KvEventPublisher, NamesAnEndpointThatCannotBe) {
  KvEventPublisher publisher(on_any_ports());
  const auto error_at = [](const std::string& endpoint, const std::string& replays = "") {
    return error_of([&] { KvEventPublisher({.endpoint = endpoint, .replay_endpoint = replays}); });
  };
  EXPECT_EQ(error_at("five"),
            "cannot publish KV events at 'five': Invalid argument; try: an endpoint of ZeroMQ, such as tcp://*:5557, "
            "that no other "
            "program has");
  EXPECT_NE(error_at("tcp://127.0.0.1:*", publisher.endpoint()).find("Address already in use"), std::string::npos);
}

}  // namespace
}  // namespace nodewright
