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
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/adapters/expand.h"
#include "kernels_src/adapters/shrink.h"
#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/rope_append.h"
#include "kernels_src/attention/rope_flash_decode.h"
#include "kernels_src/elementwise/add_bias.h"
#include "kernels_src/elementwise/gate.h"
#include "kernels_src/experts/add_experts.h"
#include "kernels_src/experts/choose_experts.h"
#include "kernels_src/experts/expert_down.h"
#include "kernels_src/experts/expert_down_add.h"
#include "kernels_src/experts/expert_down_sum.h"
#include "kernels_src/experts/expert_gate_up.h"
#include "kernels_src/experts/group_by_expert.h"
#include "kernels_src/experts/norm_expert_gate_up.h"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_add.h"
#include "kernels_src/read_stream.h"
#include "kernels_src/residual/embed.h"
#include "kernels_src/residual/norm_add.h"
#include "kernels_src/residual/norm_hidden.h"
#include "kernels_src/residual/norm_rows.h"
#include "kernels_src/sampling/record_choice.h"
#include "kernels_src/sampling/sample.h"
#include "kernels_src/sampling/shape_logits.h"
#include "kernels_src/saxpy.h"
#include "kernels_src/stamp.h"
#include "kernels_src/step/advance.h"
#include "kernels_src/step/repeat_until.h"
#include "kernels_src/step/update_tables.h"
#include "runtime/compilers/cubin_reader.h"
#include "runtime/compilers/nvrtc.h"
#include "tests/kernels/shipped_kernels.h"

namespace nodewright::test {

inline NvrtcSource nvrtc_source(const KernelRequest& request, std::span<const EmbeddedSource> extra = {}) {
  const KernelProgram program = program_of(request, extra, "cpu_driver/");
  NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  return source;
}

inline std::map<std::string, uint64_t> args_bytes() {
  return {{"embed", sizeof(Embed)},
          {"norm_project", sizeof(NormProject)},
          {"norm_gate_up", sizeof(NormGateUp)},
          {"project_add", sizeof(ProjectAdd)},
          {"project", sizeof(Project)},
          {"norm_add", sizeof(NormAdd)},
          {"rope_append", sizeof(RopeAppend)},
          {"rope_flash_decode", sizeof(RopeFlashDecode)},
          {"attend", sizeof(Attend)},
          {"attend_tiles", sizeof(AttendTiles)},
          {"norm_rows", sizeof(NormRows)},
          {"shrink", sizeof(Shrink)},
          {"norm_shrink", sizeof(NormShrink)},
          {"expand", sizeof(Expand)},
          {"adapted_gate_up", sizeof(AdaptedGateUp)},
          {"adapted_gate", sizeof(AdaptedGate)},
          {"norm_hidden", sizeof(NormHidden)},
          {"gate", sizeof(Gate)},
          {"add_bias", sizeof(AddBias)},
          {"choose_experts", sizeof(ChooseExperts)},
          {"group_by_expert", sizeof(GroupByExpert)},
          {"norm_expert_gate_up", sizeof(NormExpertGateUp)},
          {"expert_down_add", sizeof(ExpertDownAdd)},
          {"expert_down_sum", sizeof(ExpertDownSum)},
          {"expert_gate_up", sizeof(ExpertGateUp)},
          {"expert_down", sizeof(ExpertDown)},
          {"add_experts", sizeof(AddExperts)},
          {"sample", sizeof(Sample)},
          {"shape_logits", sizeof(ShapeLogits)},
          {"record_choice", sizeof(RecordChoice)},
          {"advance", sizeof(Advance)},
          {"update_tables", sizeof(UpdateTables)},
          {"layer_norm_project", sizeof(LayerNormProject<float>)},
          {"project_bias_add", sizeof(ProjectBiasAdd<float>)},
          {"embed_positions", sizeof(EmbedPositions<float>)},
          {"dense_attend", sizeof(DenseAttend)},
          {"read_stream", sizeof(ReadStream)},
          {"saxpy", sizeof(Saxpy)},
          {"stamp", sizeof(Stamp)},
          {"repeat_until", sizeof(RepeatUntil)}};
}

struct CompiledKernel {
  CubinKernel cubin;
  uint64_t spill_bytes = 0;  // stored by a thread, all in all
};

// By key, each compiled once, one after the other: NVRTC 13.0 takes turns with its callers, and two threads take longer
// than one. Throws Error with the compiler's words.
std::map<std::string, CompiledKernel> compile_all(const ShippedKernels& kernels);

}  // namespace nodewright::test
