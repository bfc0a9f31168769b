#include "models/decoder_kernels.h"

#include <optional>
#include <string>
#include <utility>

#include "kernels_src/matvec_shape.h"
#include "models/kv_cache.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// A kernel as it will be asked for and launched.
struct Choice {
  KernelRequest request;
  LaunchShape shape;
};

template <class E>
Constant constant(const char* name, E value) {
  return {name, static_cast<int64_t>(value)};
}

// W [outputs, cols] times the bucket's rows, and what the family decides.
Choice matvec(const char* name, const MatvecShape& shape, int sm_count, std::vector<Constant> of_family) {
  std::vector<Constant> constants = {
      {"kSingleRow", shape.rows == 1 ? 1 : 0},  // more rows share their code: fewer kernels to compile
      {"kTile", shape.tile()},
      {"kCols", shape.cols},
      {"kStride", shape.stride},
      {"kThreads", shape.threads()},
      {"kBatch", shape.batch()},
      {"kSegment", shape.segment()}};
  constants.insert(constants.end(), of_family.begin(), of_family.end());
  return {{name, std::move(constants)}, shape.launch_shape(sm_count)};
}

// attention_out and down: project_add or, in a family with post norms, project, which norm_add follows.
struct Choices {
  Choice embed, norm_qkv, rope_append, attend, attention_out, norm_gate_up, down, norm_logits, sample;
  std::optional<Choice> norm_add;
};

// A warp holds one key at least: 32 lanes of 8 elements.
constexpr int64_t kLargestHeadDim = 256;

Choices choose(const ModelConfig& config, int64_t rows, int sm_count, Numerics numerics) {
  if (config.head_dim > kLargestHeadDim)
    throw Error({.doing = "build attention for",
                 .object = config.architecture,
                 .detail = "head_dim is " + std::to_string(config.head_dim) + ", the kernel takes at most " +
                           std::to_string(kLargestHeadDim)});
  const auto over = [&](int64_t cols, int64_t outputs) { return MatvecShape{rows, cols, (cols + 7) / 8 * 8, outputs}; };
  const auto normed_over_hidden = [&](int64_t outputs, int64_t unit) {
    MatvecShape shape = over(config.hidden, outputs);
    shape.unit = unit;
    shape.normed = true;
    return shape;
  };
  const AttendShape attend{rows, config.heads, config.kv_heads, config.head_dim,
                           attention_splits(config, rows, sm_count, numerics)};
  const std::vector<Constant> heads = {{"kHeads", config.heads},
                                       {"kKvHeads", config.kv_heads},
                                       {"kHeadDim", config.head_dim},
                                       {"kPaddedHeadDim", attend.padded_head_dim()},
                                       {"kPageSize", kPageTokens}};
  std::vector<Constant> rotation = heads, tiling = heads;
  rotation.insert(rotation.end(), {constant("kRotate", !config.learned_positions),
                                   constant("kHeadNorm", config.head_norm), constant("kNorm", config.norm)});
  tiling.insert(tiling.end(),
                {{"kHeadTile", attend.head_tile()}, {"kLanes", attend.lanes()}, {"kSplits", attend.splits}});
  const auto n = static_cast<unsigned>(rows);
  const Constant norm = constant("kNorm", config.norm), bias = constant("kBias", config.biases);
  const auto normed = [&](int64_t outputs, const Constant& with_bias) {
    return matvec("norm_project", normed_over_hidden(outputs, 1), sm_count, {norm, with_bias});
  };
  const auto output = [&](int64_t cols) {
    return matvec(config.post_norms ? "project" : "project_add", over(cols, config.hidden), sm_count, {bias});
  };
  const int64_t unit = config.gated ? 2 : 1;  // a gate row and its up row
  Choices c{
      .embed = {{"embed",
                 {constant("kScaled", config.embedding_scale != 1), constant("kPositions", config.learned_positions)}},
                embed_shape(n)},
      .norm_qkv = normed(config.qkv_width(), bias),
      .rope_append = {{"rope_append", rotation},
                      rope_append_shape(n, static_cast<unsigned>(config.heads), static_cast<unsigned>(config.kv_heads),
                                        config.head_norm)},
      .attend = {{"attend", tiling}, attend.launch_shape()},
      .attention_out = output(config.query_width()),
      .norm_gate_up =
          matvec("norm_gate_up", normed_over_hidden(unit * config.intermediate, unit), sm_count,
                 {norm, bias, constant("kGated", config.gated), constant("kActivation", config.activation)}),
      .down = output(config.intermediate),
      .norm_logits = normed(config.vocab, {"kBias", 0}),
      .sample = {{"sample", {}}, sample_shape(n)},
      .norm_add = {},
  };
  if (config.post_norms) c.norm_add = {{"norm_add", {norm}}, norm_add_shape(n)};
  return c;
}

}  // namespace

std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, int64_t rows, int sm_count,
                                                   Numerics numerics) {
  const Choices c = choose(config, rows, sm_count, numerics);
  std::vector<KernelRequest> requests = {c.embed.request,  c.norm_qkv.request,      c.rope_append.request,
                                         c.attend.request, c.attention_out.request, c.norm_gate_up.request,
                                         c.down.request,   c.norm_logits.request,   c.sample.request};
  if (c.norm_add) requests.push_back(c.norm_add->request);
  return requests;
}

DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, int64_t rows, Numerics numerics) {
  const Choices c = choose(config, rows, cache.device().properties().sm_count, numerics);
  const auto get = [&]<class A>(Kernel<A>& kernel, const Choice& choice) {
    kernel = typed_kernel<A>(cache, choice.request, choice.shape);
  };
  const auto get_output = [&](OutputKernels& kernels, const Choice& choice) {
    if (!c.norm_add) return get(kernels.project_add, choice);
    get(kernels.project, choice);
    get(kernels.norm_add, *c.norm_add);
  };
  DecoderKernels k;
  get(k.embed, c.embed);
  get(k.norm_qkv, c.norm_qkv);
  get(k.rope_append, c.rope_append);
  get(k.attend, c.attend);
  get_output(k.attention_out, c.attention_out);
  get(k.norm_gate_up, c.norm_gate_up);
  get_output(k.down, c.down);
  get(k.norm_logits, c.norm_logits);
  get(k.sample, c.sample);
  return k;
}

}  // namespace nodewright
