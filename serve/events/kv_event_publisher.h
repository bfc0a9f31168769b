// Publishes changes of the page cache over ZeroMQ, as vLLM's KV events: for routers that send a prompt where its
// beginning is cached. docs/serving.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/cache/page_events.h"
#include "serve/events/zmq_library.h"

namespace nodewright {

struct KvEventOptions {
  // Address of the PUB socket. tcp://*:5557, ipc:// and addresses with :: are bound, others connected to, as vLLM has
  // it.
  std::string endpoint;
  std::string replay_endpoint;  // of a ROUTER socket, bound, that sends what was published again; empty: none
  std::string topic;            // the first frame; routers expect kv@POD@MODEL
  int64_t page_tokens = 0;
  int rank = 0;  // of data parallelism: the replica's number
  // Bytes of batches that wait for the publishing thread; further ones are dropped with their sequence numbers.
  size_t queue_bytes = 64 << 20;
  // Kept for replays: the last batches, up to both.
  size_t replay_batches = 10'000, replay_bytes = 64 << 20;
};

// publish() may be called from any thread; no method blocks for a reader.
class KvEventPublisher {
 public:
  // Binds or connects. Throws Error with the endpoint and ZeroMQ's reason, or as ZmqLibrary::load does.
  explicit KvEventPublisher(KvEventOptions options);
  // Sends what is queued first, and waits for readers to take it, a second at most.
  ~KvEventPublisher();
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  // One batch, numbered 0, 1, ... in the order of the calls. False: the queue is full, and it is dropped; its readers
  // see that a number is missing.
  bool publish(std::vector<PageEvent> events);

  // Where it is bound or connected, with the port that the system chose for one of *.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

 private:
  struct Batch {
    uint64_t sequence = 0;
    double seconds = 0;  // since 1970
    std::vector<PageEvent> events;
    size_t bytes = 0;
  };
  struct Sent {
    uint64_t sequence = 0;
    std::string payload;
  };

  void* open(int type, const std::string& endpoint, bool binds, std::string& where);
  void close();
  void run();
  void wake();
  void send_queued();
  void send(const Batch& batch);
  void answer_replays();
  void replay(std::string_view reader, uint64_t first);

  const KvEventOptions options_;
  const ZmqLibrary zmq_ = ZmqLibrary::load();
  void* context_ = nullptr;
  void *publishes_ = nullptr, *replays_ = nullptr;  // of the thread, once it runs
  int wakes_ = -1;                                  // an eventfd
  std::string endpoint_, replay_endpoint_;
  std::deque<Sent> sent_;  // of the thread
  size_t sent_bytes_ = 0;

  std::mutex mutex_;
  std::deque<Batch> queue_;
  size_t queued_bytes_ = 0;
  uint64_t next_ = 0;
  bool ended_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nodewright
