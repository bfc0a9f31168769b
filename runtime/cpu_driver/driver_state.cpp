// The state's few functions.
#include "runtime/cpu_driver/driver_state.h"

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

CUresult refuse(CUresult result, std::string why) {
  refusal = std::move(why);
  return result;
}

std::string take_label() { return std::exchange(next_label, {}); }

}  // namespace nodewright::cpu

extern "C" __attribute__((visibility("default"))) void nodewright_cpu_label(const char* node_name) {
  nodewright::cpu::next_label = node_name != nullptr ? node_name : "";
}
