#include "models/decoder_kernels.h"

#include <string>

#include "kernels_src/matvec_shape.h"
#include "models/decode_state.h"
#include "models/kv_cache.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// A kernel as it will be asked for and launched.
struct Choice {
  KernelRequest request;
  LaunchShape shape;
};

// W [outputs, cols] times the bucket's rows.
Choice matvec(const char* name, const MatvecShape& shape, int sm_count) {
  return {{name,
           {{"kSingleRow", shape.rows == 1 ? 1 : 0},  // more rows share their code: fewer kernels to compile
            {"kTile", shape.tile()},
            {"kCols", shape.cols},
            {"kStride", shape.stride},
            {"kThreads", shape.threads()},
            {"kBatch", shape.batch()},
            {"kSegment", shape.segment()}}},
          shape.launch_shape(sm_count)};
}

struct Choices {
  Choice embed, norm_qkv, rope_append, attend, attention_out, norm_gate_up, down, norm_logits, sample;
};

// A warp holds one key at least: 32 lanes of 8 elements.
constexpr int64_t kMostHeadDim = 256;

Choices choose(const ModelConfig& config, int64_t rows, int sm_count) {
  if (config.head_dim > kMostHeadDim)
    throw Error({.doing = "build attention for",
                 .object = config.architecture,
                 .detail = "head_dim is " + std::to_string(config.head_dim) + ", the kernel takes at most " +
                           std::to_string(kMostHeadDim)});
  const auto over = [&](int64_t cols, int64_t outputs, int64_t unit = 1) {
    return MatvecShape{rows, cols, (cols + 7) / 8 * 8, outputs, unit};
  };
  const AttendShape attend{rows, config.heads, config.kv_heads, config.head_dim,
                           attention_splits(config, rows, sm_count)};
  const std::vector<Constant> heads = {{"kHeads", config.heads},
                                       {"kKvHeads", config.kv_heads},
                                       {"kHeadDim", config.head_dim},
                                       {"kPaddedHeadDim", attend.padded_head_dim()},
                                       {"kPageSize", kPageTokens}};
  std::vector<Constant> tiling = heads;
  tiling.insert(tiling.end(),
                {{"kHeadTile", attend.head_tile()}, {"kLanes", attend.lanes()}, {"kSplits", attend.splits}});
  const auto n = static_cast<unsigned>(rows);
  return {
      .embed = {{"embed", {}}, embed_shape(n)},
      .norm_qkv = matvec("norm_project", over(config.hidden, config.qkv_width()), sm_count),
      .rope_append = {{"rope_append", heads}, rope_append_shape(n, static_cast<unsigned>(config.kv_heads))},
      .attend = {{"attend", tiling}, attend.launch_shape()},
      .attention_out = matvec("project_add", over(config.query_width(), config.hidden), sm_count),
      .norm_gate_up = matvec("norm_gate_up", over(config.hidden, 2 * config.intermediate, 2), sm_count),
      .down = matvec("project_add", over(config.intermediate, config.hidden), sm_count),
      .norm_logits = matvec("norm_project", over(config.hidden, config.vocab), sm_count),
      .sample = {{"sample", {}}, sample_shape(n)},
  };
}

}  // namespace

std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, int64_t rows, int sm_count) {
  const Choices c = choose(config, rows, sm_count);
  return {c.embed.request,        c.norm_qkv.request, c.rope_append.request, c.attend.request, c.attention_out.request,
          c.norm_gate_up.request, c.down.request,     c.norm_logits.request, c.sample.request};
}

DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, int64_t rows) {
  const Choices c = choose(config, rows, cache.device().properties().sm_count);
  const auto get = [&]<class A>(Kernel<A>& kernel, const Choice& choice) {
    kernel = typed_kernel<A>(cache, choice.request, choice.shape);
  };
  DecoderKernels k;
  get(k.embed, c.embed);
  get(k.norm_qkv, c.norm_qkv);
  get(k.rope_append, c.rope_append);
  get(k.attend, c.attend);
  get(k.attention_out, c.attention_out);
  get(k.norm_gate_up, c.norm_gate_up);
  get(k.down, c.down);
  get(k.norm_logits, c.norm_logits);
  get(k.sample, c.sample);
  return k;
}

}  // namespace nodewright
