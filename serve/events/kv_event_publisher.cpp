#include "serve/events/kv_event_publisher.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/error.h"
#include "runtime/host/held_signals.h"
#include "serve/events/kv_event_frames.h"

namespace nodewright {
namespace {

// Messages that wait for one slow reader, then it misses some. vLLM has ten times as many, of a quarter of the tokens.
constexpr int kMostUnread = 10'000;
constexpr int kLastWait_ms = 1000;  // for readers, at the end

[[noreturn]] void cannot_publish(const std::string& endpoint, const std::string& reason, Fault fault) {
  throw Error({.doing = "publish KV events at",
               .object = endpoint,
               .detail = reason,
               .advice = "an endpoint of ZeroMQ, such as tcp://*:5557, that no other program has",
               .fault = fault});
}

// vLLM's rule: the lasting side binds, the other one connects.
bool is_bound(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
}

size_t bytes_of(const std::vector<PageEvent>& events) {
  size_t bytes = 0;
  for (const PageEvent& event : events)
    bytes += sizeof(event) + event.pages.size() * sizeof(uint64_t) + event.tokens.size() * sizeof(int32_t);
  return bytes;
}

}  // namespace

KvEventPublisher::KvEventPublisher(KvEventOptions options) : options_(std::move(options)) {
  context_ = zmq_.ctx_new();
  wakes_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  try {
    if (wakes_ < 0) cannot_publish(options_.endpoint, std::strerror(errno), Fault::run_time);
    publishes_ = open(zmq::kPub, options_.endpoint, is_bound(options_.endpoint), endpoint_);
    if (!options_.replay_endpoint.empty())
      replays_ = open(zmq::kRouter, options_.replay_endpoint, true, replay_endpoint_);
    const HeldSignals held;  // signals are for the thread that waits for them
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    close();
    throw;
  }
  pthread_setname_np(thread_.native_handle(), "kv-events");
}

KvEventPublisher::~KvEventPublisher() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake();
  thread_.join();
  close();
}

// A socket at `endpoint`; `where` it is in the end.
void* KvEventPublisher::open(int type, const std::string& endpoint, bool binds, std::string& where) {
  void* const socket = zmq_.socket(context_, type);
  if (socket == nullptr) cannot_publish(endpoint, zmq_.failure(), Fault::run_time);
  // A reader is credited with what it has read only when that is half of the limit.
  const int most = type == zmq::kPub ? kMostUnread : 2 * (static_cast<int>(options_.replay_batches) + 2);
  zmq_.setsockopt(socket, zmq::kSendLimit, &most, sizeof(most));
  zmq_.setsockopt(socket, zmq::kLinger, &kLastWait_ms, sizeof(kLastWait_ms));
  const int failed = binds ? zmq_.bind(socket, endpoint.c_str()) : zmq_.connect(socket, endpoint.c_str());
  if (failed != 0) {
    const std::string reason = zmq_.failure();
    const Fault fault = zmq_.error_number() == EADDRINUSE ? Fault::run_time : Fault::usage;
    zmq_.close(socket);
    cannot_publish(endpoint, reason, fault);
  }
  std::array<char, 256> text{};
  size_t bytes = text.size();
  where = zmq_.getsockopt(socket, zmq::kLastEndpoint, text.data(), &bytes) == 0 ? text.data() : endpoint;
  return socket;
}

void KvEventPublisher::close() {
  if (publishes_ != nullptr) zmq_.close(publishes_);
  if (replays_ != nullptr) zmq_.close(replays_);
  if (context_ != nullptr) zmq_.ctx_term(context_);  // waits for what lingers
  if (wakes_ >= 0) ::close(wakes_);
}

bool KvEventPublisher::publish(std::vector<PageEvent> events) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const size_t bytes = bytes_of(events);
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t sequence = next_++;
    if (queued_bytes_ + bytes > options_.queue_bytes) return false;
    first = queue_.empty();
    queue_.push_back({sequence, now.count(), std::move(events), bytes});
    queued_bytes_ += bytes;
  }
  if (first) wake();
  return true;
}

void KvEventPublisher::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wakes_, &one, sizeof(one));  // full: it will wake anyway
}

void KvEventPublisher::run() {
  std::array<ZmqPollItem, 2> items{
      {{.descriptor = wakes_, .events = zmq::kPollIn}, {.socket = replays_, .events = zmq::kPollIn}}};
  const int count = replays_ == nullptr ? 1 : 2;
  while (true) {
    zmq_.poll(items.data(), count, -1);
    if (count == 2 && items[1].came != 0) answer_replays();
    uint64_t woken = 0;
    if (read(wakes_, &woken, sizeof(woken)) < 0) continue;
    send_queued();
    const std::lock_guard lock(mutex_);
    if (ended_ && queue_.empty()) return;
  }
}

void KvEventPublisher::send_queued() {
  std::deque<Batch> batches;
  {
    const std::lock_guard lock(mutex_);
    batches.swap(queue_);
  }
  for (const Batch& batch : batches) {
    send(batch);
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= batch.bytes;
  }
}

// A PUB socket takes everything at once, and drops it for readers that have too much.
void KvEventPublisher::send(const Batch& batch) {
  try {
    std::string payload = kv_event_payload(batch.seconds, batch.events, options_.page_tokens, options_.rank);
    const std::string sequence = sequence_frame(batch.sequence);
    zmq_.send(publishes_, options_.topic.data(), options_.topic.size(), zmq::kSendMore);
    zmq_.send(publishes_, sequence.data(), sequence.size(), zmq::kSendMore);
    zmq_.send(publishes_, payload.data(), payload.size(), 0);
    if (replays_ == nullptr) return;
    sent_bytes_ += payload.size();
    sent_.push_back({batch.sequence, std::move(payload)});
    for (; sent_.size() > options_.replay_batches || sent_bytes_ > options_.replay_bytes; sent_.pop_front())
      sent_bytes_ -= sent_.front().payload.size();
  } catch (const std::bad_alloc&) {  // as one that was dropped
  }
}

// Requests have three frames: the reader's name, which the socket adds, an empty one, and the first sequence number
// that is wanted. Others are ignored.
void KvEventPublisher::answer_replays() {
  while (true) {
    std::array<std::string, 3> frames;
    size_t count = 0;
    for (bool more = true; more; ++count) {
      std::array<char, 256> bytes;
      const int size = zmq_.recv(replays_, bytes.data(), bytes.size(), zmq::kDontWait);
      if (size < 0) return;
      if (count < frames.size()) frames[count].assign(bytes.data(), std::min(static_cast<size_t>(size), bytes.size()));
      int follows = 0;
      size_t room = sizeof(follows);
      more = zmq_.getsockopt(replays_, zmq::kMore, &follows, &room) == 0 && follows != 0;
    }
    const auto& [reader, empty, first] = frames;
    if (count != 3 || !empty.empty() || first.size() != 8) continue;
    uint64_t sequence = 0;
    for (const char byte : first) sequence = sequence << 8 | static_cast<unsigned char>(byte);
    replay(reader, sequence);
  }
}

// Each batch from `first` on that is kept, then the number -1 with an empty payload.
void KvEventPublisher::replay(std::string_view reader, uint64_t first) {
  const auto answer = [&](uint64_t sequence, std::string_view payload) {
    const std::string number = sequence_frame(sequence);
    zmq_.send(replays_, reader.data(), reader.size(), zmq::kSendMore | zmq::kDontWait);
    zmq_.send(replays_, "", 0, zmq::kSendMore | zmq::kDontWait);
    zmq_.send(replays_, number.data(), number.size(), zmq::kSendMore | zmq::kDontWait);
    zmq_.send(replays_, payload.data(), payload.size(), zmq::kDontWait);
  };
  const auto begin = std::ranges::lower_bound(sent_, first, {}, &Sent::sequence);
  for (auto one = begin; one != sent_.end(); ++one) answer(one->sequence, one->payload);
  answer(UINT64_MAX, "");
}

}  // namespace nodewright
