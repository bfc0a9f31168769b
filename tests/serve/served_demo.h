// The whole server on the CPU driver, for tests: models/demo behind an engine, its loop on a thread of its own, the
// API, and a port.
#pragma once

#include <atomic>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/server.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/serve/api/fake_engine.h"
#include "tests/serve/http/serving_fixture.h"

namespace nodewright::test {

// Access lines, as the server logs them. Thread-safe.
class KeptLines {
 public:
  AccessLog log() {
    return [this](const AccessLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<AccessLine> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Lines with this status.
  size_t count(int status) const {
    size_t sum = 0;
    for (const AccessLine& line : all()) sum += line.status == status ? 1u : 0u;
    return sum;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<AccessLine> lines_;
};

inline ServerOptions options_on_any_port() {
  ServerOptions options;
  options.http = any_port();
  return options;
}

class ServedDemo {
 public:
  explicit ServedDemo(ServerOptions options = options_on_any_port(), ReplicaOptions replica_options = {})
      : replicas("demo", std::move(replica_options)) {
    options.log = lines.log();
    server = std::make_unique<Server>(std::move(options), replicas);
    server->serve(model_.api);
    thread_ = std::thread([this] { run(); });
    ready_.get_future().get();
  }
  ~ServedDemo() {
    end();
    server.reset();
  }

  // Cancels what is open, and waits for the loop's end. `failure` is its message, empty where it ended in order.
  void end() {
    replicas.abort();
    if (thread_.joinable()) thread_.join();
  }
  // Waits for the end of a loop that drains or fails.
  void join() { thread_.join(); }
  uint16_t port() const { return server->port(); }
  std::vector<int32_t> ids(std::string_view text) const { return model_.ids(text); }
  // Every later call of the driver fails.
  void fail_driver() { loaded_->opened.interposer->fail_from(0, CUDA_ERROR_ILLEGAL_ADDRESS); }

  Replicas replicas;
  KeptLines lines;
  std::unique_ptr<Server> server;
  std::string failure;
  int64_t owned_pages = -1;  // when the loop had ended

 private:
  void run() {
    try {
      loaded_ = std::make_unique<LoadedModel>("../../models/demo", "cpu", Observe::yes);
      Engine engine(loaded_->device, loaded_->kernels, loaded_->model,
                    EngineOptions{.max_batch = 4, .max_context = 1024, .reserve = Reserve::prompt, .choices = true});
      replicas.accept();
      ready_.set_value();
      try {
        replicas.run(0, engine);
      } catch (const Error& error) {
        failure = error.what();
      }
      owned_pages = engine.pipeline().pool().owned_pages();
      loaded_->opened.interposer->fail_none();
    } catch (...) {
      ready_.set_exception(std::current_exception());
    }
    if (failure.empty()) loaded_.reset();
  }

  ServedCase model_{demo_folder()};
  std::promise<void> ready_;
  std::unique_ptr<LoadedModel> loaded_;
  std::thread thread_;
};

}  // namespace nodewright::test
