// What NVRTC makes of kernels, without a GPU: resources, machine code, and what its log says of spilled registers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "examples/nanogpt/kernels/dense_attend.h"
#include "examples/nanogpt/kernels/embed_positions.h"
#include "examples/nanogpt/kernels/layer_norm_project.h"
#include "examples/nanogpt/kernels/project_bias_add.h"
#include "runtime/compilers/cubin_reader.h"
#include "runtime/compilers/nvrtc.h"
#include "tests/kernels/kernel_list.h"
#include "tests/kernels/shipped_kernels.h"

namespace nodewright::test {

inline NvrtcSource nvrtc_source(const KernelRequest& request, std::span<const EmbeddedSource> extra = {}) {
  const KernelProgram program = program_of(request, extra, "cpu_driver/");
  NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  return source;
}

// The size of each kernel's argument struct, of NanoGPT's kernels in fp32.
inline std::map<std::string, uint64_t> args_bytes() {
  std::map<std::string, uint64_t> bytes = {{"layer_norm_project", sizeof(LayerNormProject<float>)},
                                           {"project_bias_add", sizeof(ProjectBiasAdd<float>)},
                                           {"embed_positions", sizeof(EmbedPositions<float>)},
                                           {"dense_attend", sizeof(DenseAttend)}};
  for_each_kernel([&]<class Args>(const char* kernel, const char*) { bytes[kernel] = sizeof(Args); });
  return bytes;
}

struct CompiledKernel {
  CubinKernel cubin;
  uint64_t spill_bytes = 0;  // stored by a thread, all in all
};

// Blocks that an SM of the card holds at once, by registers, shared memory, warps and their number, as cuda_occupancy.h
// counts them from 8.0 on: four parts of 16384 registers, handed out 256 a warp; 1 KiB of shared memory of each block
// is the system's.
uint64_t blocks_of_sm(const Card& card, uint64_t registers, uint64_t threads, uint64_t shared_bytes);

// By key, each compiled once, one after the other: NVRTC 13.0 takes turns with its callers, and two threads take longer
// than one. Throws Error with the compiler's words.
std::map<std::string, CompiledKernel> compile_all(const ShippedKernels& kernels);

}  // namespace nodewright::test
