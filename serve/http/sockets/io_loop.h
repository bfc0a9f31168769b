// An event loop: descriptors watched for readiness, timers, calls from other threads. Boost.Asio, which this header
// hides. It reads and writes nothing itself.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace nodewright {

// Made by its owner, run by one thread.
class IoLoop {
 public:
  IoLoop();
  ~IoLoop();
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  // Serves on the calling thread, which becomes the loop's, until finish() was called and nothing is watched any more.
  // What a call throws is dropped.
  void run();
  // From any thread.
  void finish();
  // From any thread: `call` on the loop's thread, soon, in the order of the calls. Calls left when run() has returned
  // are destroyed with the loop.
  void post(std::function<void()> call);
  // Whether this is the thread that runs it.
  bool on_its_thread() const;

 private:
  friend class WatchedDescriptor;
  friend class IoTimer;
  struct Asio;
  std::unique_ptr<Asio> asio_;
};

// A descriptor that it owns. On the loop's thread alone. What closes it drops the calls that wait.
class WatchedDescriptor {
 public:
  // Throws Error if the system cannot watch it; then the descriptor is closed, too.
  WatchedDescriptor(IoLoop& loop, int descriptor);
  ~WatchedDescriptor();  // close()

  // Calls once when a read, or a write, would not block: there is something, an error or the end.
  void when_readable(std::function<void()> call);
  void when_writable(std::function<void()> call);
  void close();
  // -1 once closed.
  int descriptor() const;

 private:
  struct Asio;
  std::unique_ptr<Asio> asio_;
};

// Calls once after a while. On the loop's thread alone.
class IoTimer {
 public:
  explicit IoTimer(IoLoop& loop);
  ~IoTimer();  // cancel()

  void after(std::chrono::milliseconds time, std::function<void()> call);
  void cancel();

 private:
  struct Asio;
  std::unique_ptr<Asio> asio_;
};

}  // namespace nodewright
