// Attention: rotation, the cache, and each row's look at it. Rows that choose attend one by one; a prompt's in tiles.
#include <algorithm>
#include <cmath>

#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/flash_decode.h"
#include "kernels_src/attention/rope_append.h"
#include "kernels_src/attention/rope_flash_decode.h"
#include "models/kv_cache.h"
#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr int64_t kLargestHeadDim = 256;  // a warp holds one key at least: 32 lanes of 8 elements

// What precedes attention: the norm of heads and the rotation, where the network has them, and the cache's new entries.
struct IntoCache {
  size_t operations = 0;  // 0: another run
  bool head_norm = false, rotates = false;
};
IntoCache into_cache(std::span<const Op> ops) {
  IntoCache found;
  size_t at = 0;
  const auto take = [&](OpKind kind) { return at < ops.size() && ops[at].kind == kind && ++at > 0; };
  found.head_norm = take(OpKind::head_norm);
  found.rotates = take(OpKind::rotate);
  if (take(OpKind::append)) found.operations = at;
  return found;
}

std::vector<Constant> heads_of(const LoweringContext& at) {
  return {{"kHeads", at.config.heads},
          {"kKvHeads", at.config.kv_heads},
          {"kHeadDim", at.config.head_dim},
          {"kPaddedHeadDim", padded_head_dim(at.config.head_dim, at.config.cache)},
          {"kCacheFormat", static_cast<int64_t>(at.config.cache)},
          {"kPageSize", kPageTokens},
          cap_constant("kScoreCap", static_cast<float>(M_LOG2E * at.config.score_cap))};
}

HeadNorm head_norm(const LoweringContext& at, const IntoCache& into) {
  return into.head_norm ? at.config.head_norm : HeadNorm::none;
}

std::vector<Constant> with_rotation(const LoweringContext& at, const IntoCache& into) {
  std::vector<Constant> constants = heads_of(at);
  constants.insert(constants.end(),
                   {constant("kRotate", into.rotates), constant("kHeadNorm", head_norm(at, into)),
                    constant("kAmplitude", at.config.scales_turns()), constant("kNorm", at.config.norm)});
  return constants;
}

template <KernelArgs A>
KernelChoice attention_choice(KernelRequest request, const LaunchShape& shape) {
  KernelChoice choice = kernel_choice<A>(std::move(request), shape);
  choice.of_attention = true;
  return choice;
}

// The scale of q . k, for exponentials of base two.
float score_scale(const ModelConfig& config) {
  return static_cast<float>(M_LOG2E * config.query_scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

uint64_t written_kv_bytes(const StepPlace& step) {
  return count_of(2 * step.s.rows * step.config.kv_width() * element_bytes(step.config.cache));
}

// What the kernels of attention have in common: queries, the layer's pages, and each row's place in them.
template <class Args>
Args attention_args(const StepPlace& step, const StepWeights& weights, const CachePlace& cache) {
  const DecodeState& s = step.s;
  Args args{};
  args.kv = cache.kv;
  args.positions = s.inputs.positions;
  args.sequences = s.inputs.sequences;
  args.block_table = cache.table;
  args.table_stride = s.table_stride;
  args.n_live = s.inputs.n_live;
  if constexpr (requires { args.q; }) args.q = s.q;
  if constexpr (requires { args.qkv; }) {
    args.qkv = s.qkv;
    args.qkv_stride = step.config.qkv_width();
    args.frequencies = cache.frequencies;
    args.eps = step.config.eps;
    if (!step.config.norms_heads_of_ranks()) args.q_gain = weights.layer->q_norm, args.k_gain = weights.layer->k_norm;
  }
  if constexpr (requires { args.y; }) {
    args.y = s.attended;
    args.y_stride = weights.layer->out.stride;
    args.window = cache.window;
    args.scale = score_scale(step.config) * weights.layer->cache_scales.key;
  }
  if constexpr (requires { args.key_scale; }) args.key_scale = weights.layer->cache_scales.key;
  if constexpr (requires { args.value_scale; }) args.value_scale = weights.layer->cache_scales.value;
  if constexpr (requires { args.partials; }) {
    args.partials = s.partials;
    if (s.partials.count > 0) args.arrivals = s.arrivals;  // of splits that are merged through global memory
  }
  return args;
}

// For `rows` rows with the most keys and values that one attends to: the longest context, or its window.
uint64_t read_kv_bytes(const StepPlace& step, const CachePlace& cache, int64_t rows) {
  const int64_t context = step.s.table_stride * kPageTokens;
  const int64_t keys = cache.window ? std::min(cache.window, context) : context;
  return count_of(2 * rows * keys * step.config.kv_width() * element_bytes(step.config.cache));
}

void emit_rope_flash_decode(const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                            const CachePlace& cache) {
  const DecodeState& s = step.s;
  step.g.launch("attend", run.kernel<RopeFlashDecode>(), attention_args<RopeFlashDecode>(step, weights, cache),
                {.traffic = Traffic{s.qkv.bytes() + read_kv_bytes(step, cache, s.rows),
                                    s.attended.bytes() + written_kv_bytes(step)}});
}

void emit_rope_append(const LoadedRun& run, const StepPlace& step, const StepWeights& weights, const CachePlace& cache,
                      bool rotates, bool biased) {
  auto args = attention_args<RopeAppend>(step, weights, cache);
  if (biased) args.bias = weights.layer->qkv.bias;
  step.g.launch(rotates ? "rope" : "append", run.kernel<RopeAppend>(), args,
                {.traffic = Traffic{step.s.qkv.bytes(), step.s.q.bytes() + written_kv_bytes(step)}});
}

// Rows one by one: with tiles after them, those that choose.
void emit_single_rows(const LoadedRun& run, const StepPlace& step, const StepWeights& weights, const CachePlace& cache,
                      bool with_tiles) {
  const int64_t rows = step.s.sampled_rows;
  auto args = attention_args<Attend>(step, weights, cache);
  if (with_tiles) args.n_live = step.s.inputs.n_sampled;
  step.g.launch(
      "attend", run.kernel<Attend>(), args,
      {.traffic = Traffic{sizeof(float) * count_of(rows * step.config.query_width()) + read_kv_bytes(step, cache, rows),
                          sizeof(bf16) * count_of(rows * weights.layer->out.stride)}});
}

void emit_tiles(const LoadedRun& run, const StepPlace& step, const StepWeights& weights, const CachePlace& cache) {
  auto args = attention_args<AttendTiles>(step, weights, cache);
  args.n_first = step.s.inputs.n_sampled;
  step.g.launch("attend_tiles", run.kernel<AttendTiles>(1), args,
                {.traffic = Traffic{step.s.q.bytes() + read_kv_bytes(step, cache, 1), step.s.attended.bytes()}});
}

void check_head_dim(const ModelConfig& config) {
  if (config.head_dim <= kLargestHeadDim) return;
  throw Error({.doing = "build attention for",
               .object = config.architecture,
               .detail = "head_dim is " + std::to_string(config.head_dim) + ", the kernel takes at most " +
                         std::to_string(kLargestHeadDim)});
}

}  // namespace

// attended = attention(rope(qkv)), and the cache's new entries, in one kernel.
LoweringResult lower_rope_flash_decode(const LoweringContext& at, std::span<const Op> ops, ResidualForm) {
  const IntoCache into = into_cache(ops);
  if (into.operations == 0 || !begins(ops.subspan(into.operations), {OpKind::attend})) return {};
  check_head_dim(at.config);
  if (!at.step.takes_flash_decode(at.config)) return "tensor cores take no heads of this size";
  if (!at.step.takes_rope_flash_decode(at.config))
    return at.step.with_products() ? "a prompt's rows attend in tiles"
                                   : "invariant numerics rotate and attend apart: more than 32 rows, or heads normed "
                                     "together";
  const FlashDecodeShape flash = flash_decode_shape(at.config, at.step, at.device);
  return LoweredRun{
      .operations = into.operations + 1,
      .kernels = {attention_choice<RopeFlashDecode>(
          {"rope_flash_decode", constants_of(flash.constants(), with_rotation(at, into))}, flash.rope_launch_shape())},
      .emit = emits(emit_rope_flash_decode)};
}

bool rope_adds_bias(const LoweringContext& at, ResidualForm form) {
  return at.config.biases.qkv && is_library_used(at, form) && at.config.head_norm == HeadNorm::none &&
         !at.step.takes_rope_flash_decode(at.config);
}

// q = rope(q), and the cache's new entries.
LoweringResult lower_rope_append(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  const IntoCache into = into_cache(ops);
  if (into.operations == 0) return {};
  check_head_dim(at.config);
  const bool biased = rope_adds_bias(at, form);
  std::vector<Constant> constants = with_rotation(at, into);
  constants.push_back(constant("kBias", biased));
  return LoweredRun{
      .operations = into.operations,
      .kernels = {kernel_choice<RopeAppend>(
          {"rope_append", std::move(constants)},
          rope_append_shape(static_cast<unsigned>(at.step.rows), static_cast<unsigned>(at.config.heads),
                            static_cast<unsigned>(at.config.kv_heads), at.config.head_dim,
                            static_cast<int64_t>(head_norm(at, into))))},
      .emit = emits([rotates = into.rotates, biased](const LoadedRun& run, const StepPlace& step,
                                                     const StepWeights& weights, const CachePlace& cache) {
        emit_rope_append(run, step, weights, cache, rotates, biased);
      })};
}

// attended = attention(q): rows one by one, and with products the others in tiles.
LoweringResult lower_attend(const LoweringContext& at, std::span<const Op> ops, ResidualForm) {
  if (!begins(ops, {OpKind::attend})) return {};
  const ModelConfig& config = at.config;
  LoweredRun lowered{.operations = 1};
  if (at.step.takes_flash_decode(config)) {
    const FlashDecodeShape flash = flash_decode_shape(config, at.step, at.device);
    lowered.kernels = {attention_choice<Attend>({"flash_decode", constants_of(flash.constants(), heads_of(at))},
                                                flash.launch_shape())};
  } else {
    const AttendShape attend{at.step.single_rows(config), config.heads, config.kv_heads, config.head_dim,
                             attention_splits(config, at.step, at.device)};
    lowered.kernels = {
        attention_choice<Attend>({"attend", constants_of(attend.constants(), heads_of(at))}, attend.launch_shape())};
  }
  const bool with_tiles = at.step.with_products();
  if (with_tiles) {
    const AttendTilesShape tiles{at.step.rows,
                                 config.heads,
                                 config.kv_heads,
                                 config.head_dim,
                                 at.device.shared_optin_bytes,
                                 at.device.cc_major == 9 && at.device.cc_minor == 0,
                                 config.cache};
    lowered.kernels.push_back(attention_choice<AttendTiles>(
        {"attend_tiles", constants_of(tiles.constants(), heads_of(at))}, tiles.launch_shape()));
  }
  lowered.emit = emits(
      [with_tiles](const LoadedRun& run, const StepPlace& step, const StepWeights& weights, const CachePlace& cache) {
        if (!with_tiles || step.chooses) emit_single_rows(run, step, weights, cache, with_tiles);
        if (with_tiles) emit_tiles(run, step, weights, cache);
      });
  return lowered;
}

}  // namespace nodewright
