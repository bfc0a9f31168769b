#include "runtime/calls/interposer.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <utility>

#include "runtime/calls/child_ownership.h"

namespace nodewright {
namespace {

constexpr int kNoArgument = -1;

// What a call does to the ledger: which argument points to a new handle, which one is a handle that goes.
struct Effect {
  HandleKind kind = HandleKind::stream;
  int creates = kNoArgument;
  int destroys = kNoArgument;
  bool is_value = false;  // the argument that `creates` names is the handle itself
};

Effect effect_of(DriverEntry entry) {
  using Entry = DriverEntry;
  using Kind = HandleKind;
  static constexpr std::pair<Entry, Effect> kEffects[] = {
      {Entry::cuDevicePrimaryCtxRetain, {.kind = Kind::primary_context, .creates = 1}},  // known by its device
      {Entry::cuDevicePrimaryCtxRelease, {.kind = Kind::primary_context, .destroys = 0}},
      {Entry::cuMemAlloc, {.kind = Kind::device_memory, .creates = 0}},
      {Entry::cuMemAllocAsync, {.kind = Kind::device_memory, .creates = 0}},
      {Entry::cuMemFree, {.kind = Kind::device_memory, .destroys = 0}},
      {Entry::cuMemFreeAsync, {.kind = Kind::device_memory, .destroys = 0}},
      {Entry::cuMemHostAlloc, {.kind = Kind::host_memory, .creates = 0}},
      {Entry::cuMemFreeHost, {.kind = Kind::host_memory, .destroys = 0}},
      {Entry::cuMemHostRegister, {.kind = Kind::host_memory, .creates = 0, .is_value = true}},
      {Entry::cuMemHostUnregister, {.kind = Kind::host_memory, .destroys = 0}},
      {Entry::cuStreamCreate, {.kind = Kind::stream, .creates = 0}},
      {Entry::cuStreamDestroy, {.kind = Kind::stream, .destroys = 0}},
      {Entry::cuEventCreate, {.kind = Kind::event, .creates = 0}},
      {Entry::cuEventDestroy, {.kind = Kind::event, .destroys = 0}},
      {Entry::cuLibraryLoadData, {.kind = Kind::library, .creates = 0}},
      {Entry::cuLibraryUnload, {.kind = Kind::library, .destroys = 0}},
      {Entry::cuGraphCreate, {.kind = Kind::graph, .creates = 0}},
      {Entry::cuGraphClone, {.kind = Kind::graph, .creates = 0}},
      {Entry::cuStreamEndCapture, {.kind = Kind::graph, .creates = 1}},  // into a given graph: already known
      {Entry::cuGraphDestroy, {.kind = Kind::graph, .destroys = 0}},
      {Entry::cuGraphInstantiateWithParams, {.kind = Kind::graph_exec, .creates = 0}},
      {Entry::cuGraphExecDestroy, {.kind = Kind::graph_exec, .destroys = 0}},
  };
  const auto* found = std::ranges::find(kEffects, entry, &std::pair<Entry, Effect>::first);
  return found == std::end(kEffects) ? Effect{} : found->second;
}

bool only_reads_words(DriverEntry entry) {
  return entry == DriverEntry::cuGetErrorName || entry == DriverEntry::cuGetErrorString;
}

// The value that identifies what the call made: the handle it wrote, or a context's device.
uint64_t created_value(const DriverCall& call, const Effect& effect) {
  const uint64_t word = call.words[effect.creates];
  if (effect.kind == HandleKind::primary_context) return static_cast<uint32_t>(word);
  if (effect.is_value) return word;
  return *reinterpret_cast<const uint64_t*>(word);
}

uint64_t destroyed_value(const DriverCall& call, const Effect& effect) {
  const uint64_t word = call.words[effect.destroys];
  return effect.kind == HandleKind::primary_context ? static_cast<uint32_t>(word) : word;
}

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

// before() leaves the call's number in DriverCall::note, and whether after() is to report an injected failure.
constexpr uint64_t kFailAfterwards = uint64_t{1} << 63;

}  // namespace

std::string_view to_string(HandleKind kind) {
  constexpr std::string_view kNames[] = {"primary context", "device memory", "host memory", "stream",
                                         "event",           "library",       "graph",       "graph exec"};
  return kNames[static_cast<size_t>(kind)];
}

Interposer::Interposer(Driver& driver) : driver_(driver) { driver_.observe(this); }
Interposer::~Interposer() {
  if (driver_.observer() == this) driver_.observe(nullptr);
}

void Interposer::trace_to(std::function<void(std::string_view)> sink) {
  const std::lock_guard lock(mutex_);
  sink_ = std::move(sink);
}

void Interposer::fail_call(uint64_t n, CUresult result) {
  const std::lock_guard lock(mutex_);
  fail_at_ = calls_ + n;
  fail_onward_ = false;
  failure_ = result;
}

void Interposer::fail_from(uint64_t n, CUresult result) {
  const std::lock_guard lock(mutex_);
  fail_at_ = calls_ + n;
  fail_onward_ = true;
  failure_ = result;
}

void Interposer::fail_none() {
  const std::lock_guard lock(mutex_);
  fail_at_ = UINT64_MAX;
}

uint64_t Interposer::failures_injected() const {
  const std::lock_guard lock(mutex_);
  return failures_injected_;
}

uint64_t Interposer::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

uint64_t Interposer::calls(DriverEntry entry) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(entry)];
}

std::vector<LiveHandle> Interposer::live() const {
  std::vector<LiveHandle> handles;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, live] : live_) handles.push_back({key.first, key.second, live.created_by, live.serial});
  }
  std::sort(handles.begin(), handles.end(), [](const auto& a, const auto& b) { return a.serial < b.serial; });
  return handles;
}

uint64_t Interposer::live_count(HandleKind kind) const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint64_t>(
      std::count_if(live_.begin(), live_.end(), [&](const auto& entry) { return entry.first.first == kind; }));
}

std::string Interposer::describe_live() const {
  const std::vector<LiveHandle> handles = live();
  std::string text = std::to_string(handles.size()) + " live";
  for (const LiveHandle& handle : handles) {
    text += &handle == &handles.front() ? ": " : ", ";
    text += std::string(to_string(handle.kind)) + " " + hex(handle.value) + " of " + std::string(handle.created_by) +
            " (call " + std::to_string(handle.serial) + ")";
  }
  return text;
}

std::optional<CUresult> Interposer::before(const DriverCall& call) {
  if (only_reads_words(call.entry)) return std::nullopt;
  const Effect effect = effect_of(call.entry);
  const std::lock_guard lock(mutex_);
  const uint64_t serial = calls_++;
  ++counts_[static_cast<size_t>(call.entry)];
  call.note = serial;
  // A handle leaves the ledger before the driver can give its value to another thread's new one.
  if (effect.destroys != kNoArgument) {
    const auto found = live_.find({effect.kind, destroyed_value(call, effect)});
    if (found != live_.end() && --found->second.references == 0) live_.erase(found);
  }
  const bool fails = fail_onward_ ? serial >= fail_at_ : serial == fail_at_;
  if (!fails) return std::nullopt;
  ++failures_injected_;
  call.note |= kFailAfterwards;
  if (effect.destroys != kNoArgument) return std::nullopt;  // executed, then reported as failed
  return failure_;
}

CUresult Interposer::after(const DriverCall& call, CUresult result) {
  if (only_reads_words(call.entry)) return result;
  const std::lock_guard lock(mutex_);
  const uint64_t serial = call.note & ~kFailAfterwards;
  if ((call.note & kFailAfterwards) != 0) result = failure_;
  if (result == CUDA_SUCCESS) keep_ledger(call, serial);
  if (sink_) write_trace(call, serial, result);
  return result;
}

// A child graph that was moved is its node's from then on, and goes with it.
void Interposer::give_to_parent(const DriverCall& call) {
  const auto& parameters = *reinterpret_cast<const CUgraphNodeParams*>(call.words[5]);
  if (parameters.type == CU_GRAPH_NODE_TYPE_GRAPH && is_moved(parameters.graph))
    live_.erase({HandleKind::graph, reinterpret_cast<uint64_t>(parameters.graph.graph)});
}

void Interposer::keep_ledger(const DriverCall& call, uint64_t serial) {
  const Effect effect = effect_of(call.entry);
  if (call.entry == DriverEntry::cuGraphAddNode) give_to_parent(call);
  if (effect.creates == kNoArgument) return;
  const uint64_t value = created_value(call, effect);
  if (value == 0 && effect.kind != HandleKind::primary_context) return;  // a capture that yielded no graph
  const auto [place, fresh] = live_.try_emplace({effect.kind, value}, Live{call.name, serial, 1});
  if (!fresh && effect.kind == HandleKind::primary_context) ++place->second.references;
}

void Interposer::write_trace(const DriverCall& call, uint64_t serial, CUresult result) {
  std::string line = std::to_string(serial) + " " + std::string(call.name) + "(";
  for (size_t i = 0; i < call.words.size(); ++i) {
    if (i != 0) line += ", ";
    const bool address = (call.address_mask >> i & 1) != 0;
    line += address ? hex(call.words[i]) : std::to_string(static_cast<int64_t>(call.words[i]));
  }
  line += ") = " + result_name(result);
  const Effect effect = effect_of(call.entry);
  if (result == CUDA_SUCCESS && effect.creates != kNoArgument && effect.kind != HandleKind::primary_context)
    line += " -> " + hex(created_value(call, effect));
  sink_(line);
}

}  // namespace nodewright
