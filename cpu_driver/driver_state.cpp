// The state's few functions.
#include "cpu_driver/driver_state.h"

#include <algorithm>

namespace nodewright::cpu {

thread_local CUcontext current_context = nullptr;
thread_local std::string refusal;

namespace {
thread_local std::string next_label;
}

State& state() {
  static State& only = *new State;
  return only;
}

void State::fail(CUresult result, std::string text) {
  if (sticky != CUDA_SUCCESS) return;
  sticky = result;
  report = std::move(text);
}

bool State::is_retained(CUcontext context) const {
  const uint64_t device = reinterpret_cast<uint64_t>(context) - kContextHandles;
  return device < retained.size() && retained[device] > 0;
}

bool State::any_retained() const {
  return std::any_of(retained.begin(), retained.end(), [](int count) { return count > 0; });
}

std::shared_ptr<Stream> State::find_stream(CUstream handle) const {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return null_stream;
  const auto stream = streams.find(handle);
  if (stream == nullptr) {
    refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream: never created, or destroyed");
  } else if (stream->context != current_context) {
    refuse(CUDA_ERROR_INVALID_HANDLE, "the stream belongs to device " + std::to_string(device_of(stream->context)) +
                                          ", and the context of device " + std::to_string(device_of(current_context)) +
                                          " is current");
    return nullptr;
  }
  return stream;
}

bool State::is_registered(uint64_t address, uint64_t bytes) const {
  const auto next = registered.upper_bound(address);
  return next != registered.begin() && std::prev(next)->second - address >= bytes && std::prev(next)->second > address;
}

bool State::is_pageable(CUmemorytype type, const void* host) const {
  const auto address = reinterpret_cast<uint64_t>(host);
  return type == CU_MEMORYTYPE_HOST && !memory->contains(address) && !is_registered(address, 1);
}

CUresult refuse(CUresult result, std::string why) {
  refusal = std::move(why);
  return result;
}

std::string take_label() { return std::exchange(next_label, {}); }

}  // namespace nodewright::cpu

extern "C" __attribute__((visibility("default"))) void nodewright_cpu_label(const char* node_name) {
  nodewright::cpu::next_label = node_name != nullptr ? node_name : "";
}

extern "C" __attribute__((visibility("default"))) void nodewright_cpu_name_buffer(unsigned long long address,
                                                                                  const char* name) {
  nodewright::cpu::State& state = nodewright::cpu::state();
  const std::lock_guard lock(state.mutex);
  if (state.memory) state.memory->name(address, name);
}
