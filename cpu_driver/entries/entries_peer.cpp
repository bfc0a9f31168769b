// Entry points: devices that use each other's memory. All of this driver's devices may, once their contexts say so; a
// copy between two needs no such word (CUDA C++ Programming Guide, "Peer-to-Peer Memory Access").
#include "cpu_driver/driver_state.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

CUresult check_two(const State& s, CUdevice device, CUdevice other) {
  for (const CUdevice each : {device, other})
    if (each < 0 || each >= s.options.devices)
      return refuse(CUDA_ERROR_INVALID_DEVICE,
                    "device " + std::to_string(each) + " of " + std::to_string(s.options.devices) + " devices");
  return CUDA_SUCCESS;
}

// Whether the current context's device may use the memory of `other`'s; null: `other` is no context to ask about.
bool* access_to(State& s, CUcontext other, CUresult& result) {
  if (s.is_retained(other) && other != current_context) {
    result = CUDA_SUCCESS;
    return &s.peers[static_cast<size_t>(device_of(current_context))][static_cast<size_t>(device_of(other))];
  }
  result = refuse(CUDA_ERROR_INVALID_CONTEXT, other == current_context
                                                  ? "the context is the current one, which needs no peer access"
                                                  : "no primary context, or released");
  return nullptr;
}

}  // namespace

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *can = device != peer;
    return check_two(s, device, peer);
  });
}

// All links are alike, with atomics.
CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  return enter(Needs::initialised, [&](State& s, Lock&) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device == peer) return refuse(CUDA_ERROR_INVALID_DEVICE, "both devices are the same");
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        break;
      default:
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "attribute " + std::to_string(attribute) + " of two devices is not known");
    }
    return check_two(s, device, peer);
  });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    if (flags != 0) return refuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    CUresult result;
    bool* access = access_to(s, peer, result);
    if (access == nullptr) return result;
    if (*access) return refuse(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is on already");
    *access = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    CUresult result;
    bool* access = access_to(s, peer, result);
    if (access == nullptr) return result;
    if (!*access) return refuse(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access is not on");
    *access = false;
    return CUDA_SUCCESS;
  });
}

// The contexts say what the addresses say already (unified addressing).
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                   size_t bytes, CUstream stream) {
  {
    State& s = state();
    const Lock lock(s.mutex);
    if (!s.is_retained(to_context) || !s.is_retained(from_context))
      return refuse(CUDA_ERROR_INVALID_CONTEXT, "no primary context, or released");
  }
  return cuMemcpyDtoDAsync(to, from, bytes, stream);
}
