// Lines to a descriptor that may be closed, full or stalled: a bounded queue, written by a thread of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace nodewright {

struct QueuedWriterOptions {
  size_t queue_bytes = 1 << 20;  // of texts that wait; beyond: they are dropped
  std::string lost_words;        // after "N " in the line that tells of dropped texts; empty: no such line
  bool ends_on_error = false;    // the first write that fails is the last one; otherwise each is tried
};

// add(), dropped() and error() may be called from any thread; they neither block nor throw.
class QueuedWriter {
 public:
  // Does not own `descriptor`, which must stay open until finish() has returned true, or for good.
  explicit QueuedWriter(int descriptor, QueuedWriterOptions options = {});
  ~QueuedWriter();  // finish() with kPatience
  QueuedWriter(const QueuedWriter&) = delete;
  QueuedWriter& operator=(const QueuedWriter&) = delete;

  static constexpr std::chrono::milliseconds kPatience{500};

  // Whole texts leave in the order of the calls, or not at all; one that fails halfway counts as dropped.
  void add(std::string text) noexcept;
  // Texts that found no room, or that the descriptor refused.
  uint64_t dropped() const noexcept;
  // errno of the first write that failed; 0: none has.
  int error() const noexcept;
  // Waits until all that was added has left or was dropped: whether it has.
  bool settle(std::chrono::milliseconds patience) noexcept;
  // Takes no more, and waits for the queue to leave: whether it has. A thread that is stuck in a write is left alone,
  // and what it has not written counts as dropped.
  bool finish(std::chrono::milliseconds patience) noexcept;

 private:
  struct State;

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace nodewright
