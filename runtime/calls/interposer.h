// An observer of every driver call: a ledger of live handles, a numbered trace, and injected failures. For tests and
// for --trace; a run without it pays nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/driver.h"

namespace nodewright {

// Graph nodes and conditional handles belong to their graph, kernels and functions to their library.
enum class HandleKind : uint8_t {
  primary_context,
  device_memory,
  host_memory,
  stream,
  event,
  library,
  graph,
  graph_exec
};
std::string_view to_string(HandleKind kind);

struct LiveHandle {
  HandleKind kind;
  uint64_t value;               // the handle or the address; the ordinal for a primary context
  std::string_view created_by;  // "cuStreamCreate"
  uint64_t serial;              // number of the creating call
};

class Interposer final : public CallObserver {
 public:
  // Attaches to `driver` until destroyed.
  explicit Interposer(Driver& driver);
  ~Interposer() override;
  Interposer(const Interposer&) = delete;
  Interposer& operator=(const Interposer&) = delete;

  // Gets one line per call: "12 cuMemAlloc(0x7ffc2d10, 4096) = CUDA_SUCCESS -> 0x7f6a00000000". Empty: no trace.
  // Called under the interposer's lock, so that lines keep the order of their numbers' completion.
  void trace_to(std::function<void(std::string_view)> sink);

  // Makes the n-th call from now fail once with `result` (n = 0: the next one); fail_from: it and every later one.
  // A releasing call (Destroy, Free, Unload, Release) is still executed, then reports the failure.
  void fail_call(uint64_t n, CUresult result);
  void fail_from(uint64_t n, CUresult result);
  void fail_none();
  uint64_t failures_injected() const;

  // Calls so far. cuGetErrorName and cuGetErrorString are not counted, traced or failed: they only read words.
  uint64_t calls() const;
  uint64_t calls(DriverEntry entry) const;

  // Handles created and not yet destroyed, oldest first. Empty when everything has been released.
  std::vector<LiveHandle> live() const;
  uint64_t live_count(HandleKind kind) const;
  // One line for a test's message: "2 live: stream 0x55.. of cuStreamCreate (call 7), ...".
  std::string describe_live() const;

  std::optional<CUresult> before(const DriverCall& call) override;
  CUresult after(const DriverCall& call, CUresult result) override;

 private:
  struct Live {
    std::string_view created_by;
    uint64_t serial;
    uint64_t references;  // above 1 for a primary context only
  };

  void give_to_parent(const DriverCall& call);
  void keep_ledger(const DriverCall& call, uint64_t serial);
  void write_trace(const DriverCall& call, uint64_t serial, CUresult result);

  Driver& driver_;
  mutable std::mutex mutex_;
  std::function<void(std::string_view)> sink_;
  std::map<std::pair<HandleKind, uint64_t>, Live> live_;
  std::array<uint64_t, static_cast<size_t>(DriverEntry::kCount)> counts_{};
  uint64_t calls_ = 0;
  uint64_t fail_at_ = UINT64_MAX;  // number of the first call to fail
  bool fail_onward_ = false;
  CUresult failure_ = CUDA_SUCCESS;
  uint64_t failures_injected_ = 0;
};

}  // namespace nodewright
