// Where the ranks' values come by a library's calls instead of packets: a node that gives a rank's own, where that is
// more than a product, the call, and a kernel that adds or places what all have, in the order of the ranks. The bits
// are those of packets.
#include <algorithm>
#include <string>

#include "kernels_src/collective/gathered_add.h"
#include "kernels_src/collective/gathered_embed.h"
#include "kernels_src/collective/gathered_logits.h"
#include "kernels_src/collective/gathered_norm_heads.h"
#include "kernels_src/collective/own_embedding.h"
#include "kernels_src/collective/own_squares.h"
#include "kernels_src/collective/rank_value.h"
#include "models/lowering/embed_args.h"
#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"
#include "models/weights/row_stride.h"
#include "runtime/libraries/collectives.h"

namespace nodewright {
namespace {

unsigned rows_of(const LoweringContext& at) { return static_cast<unsigned>(at.step.rows); }

// After the call before it, whatever memory both use: ranks that made them in another order would wait for ever.
template <class T>
void all_gather(const StepPlace& step, RankPlace& ranks, const std::string& name, View<T> from, View<T> to) {
  Collectives* const group = ranks.calls;
  const auto submit = [group, from, to](CUstream stream) {
    group->all_gather(stream, from.address(), to.address(), from.bytes());
  };
  const auto on_host = [group, from, to] {
    group->all_gather_on_host(reinterpret_cast<const void*>(from.address()), reinterpret_cast<void*>(to.address()),
                              from.bytes());
  };
  LibraryCall call{.submit = submit, .stand_in = on_host, .what = std::string(kAllGather), .is_ready = true};
  ranks.last_call = {
      step.g.library(name, {reads<"from">(from), writes<"to">(to)}, std::move(call), {.after = ranks.last_call})};
}

bool gives_more_than_product(const ModelConfig& config, const ExchangedSum& of) {
  return of.bias || of.chosen > 0 || (of.to.adds() && config.residual_scale != 1);
}

void emit_rank_value(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y, const ExchangedSum& of,
                     View<float> value) {
  RankValue args{.own = own_in(p, y, of), .stride = row_stride(p.step.config.hidden)};
  if (of.bulk)
    args.value_bf16 = as_bf16(value);
  else
    args.value = value;
  p.step.g.launch(node_name(of.to.product) + "_value", run.kernel<RankValue>(kernel), args);
}

}  // namespace

TileOrder tile_order(const KernelChoice& tiles) {
  const auto constant_of = [&](std::string_view name) {
    const auto found = std::ranges::find(tiles.request.constants, name, &Constant::name);
    return std::get<int64_t>(found->value.held);
  };
  const int64_t threads = constant_of("kThreads"), tokens = 8 * constant_of("kTokenTiles");
  return {.lanes = threads >= 32 * tokens   ? 32
                   : threads >= 16 * tokens ? 16
                                            : 8,  // kernels_src/product/tiles/tile_kept_sums.cuh
          .splits = constant_of("kSplits"),
          .blocks = tiles.shape.grid[0]};
}

std::vector<KernelChoice> gathered_sum_choices(const LoweringContext& at, const ExchangedSum& of,
                                               const TileOrder& order) {
  const bool gained = of.to.form == ResidualForm::gained;
  const auto cols = static_cast<unsigned>(at.config.hidden), sm_count = static_cast<unsigned>(at.device.sm_count);
  std::vector<KernelChoice> choices;
  if (gives_more_than_product(at.config, of))
    choices.push_back(kernel_choice<RankValue>(
        {"rank_value",
         {constant("kBias", of.bias), scale_constant(at, of.to), constant("kBulk", of.bulk), {"kChosen", of.chosen}}},
        rank_value_shape(rows_of(at), cols, sm_count)));
  choices.push_back(kernel_choice<GatheredAdd>({"gathered_add",
                                                {ranks_constant(at),
                                                 constant("kAdds", of.to.adds()),
                                                 constant("kBulk", of.bulk),
                                                 constant("kLeavesGained", gained),
                                                 {"kLanes", gained ? order.lanes : 0},
                                                 {"kSplits", gained ? order.splits : 1}}},
                                               gained && order.lanes > 0
                                                   ? gathered_tiles_shape(order.blocks)
                                                   : gathered_add_shape(rows_of(at), cols, sm_count, gained)));
  return choices;
}

void emit_gathered_sum(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y,
                       const ExchangedSum& of) {
  const StepPlace& step = p.step;
  const DecodeState& s = step.s;
  const std::string node = node_name(of.to.product);
  const int64_t stride = row_stride(step.config.hidden);
  const uint64_t count = of.chosen > 0 ? count_of(s.rows * stride) : y.count;
  View<float> own = y;
  if (gives_more_than_product(step.config, of)) {
    own = s.collective.given.subview(0, count);
    emit_rank_value(run, kernel++, p, y, of, own);
  }
  const auto loaded = run.kernel<GatheredAdd>(kernel);
  GatheredAdd args{.n_live = s.inputs.n_live, .cols = step.config.hidden, .values_stride = static_cast<int64_t>(count)};
  const View<float> gathered = s.collective.gathered.subview(0, count_of(step.config.shard.ranks) * count);
  if (of.bulk) {
    all_gather(step, p.ranks, node + "_gather", as_bf16(own), as_bf16(gathered));
    args.values_bf16 = as_bf16(gathered);
  } else {
    all_gather(step, p.ranks, node + "_gather", own, gathered);
    args.values = gathered;
  }
  fill_sum(args.to, of.to, loaded.shape.grid[0], p);
  step.g.launch(node + "_sum", loaded, args);
}

LoweredRun gathered_embedding(const LoweringContext& at, ResidualForm form) {
  const bool gained = form == ResidualForm::gained;
  return {.operations = 1,
          .kernels = {kernel_choice<OwnEmbedding>({"own_embedding", {ranks_constant(at)}},
                                                  own_embedding_shape(rows_of(at))),
                      kernel_choice<GatheredEmbed>(
                          {"gathered_embed",
                           {ranks_constant(at), constant("kScaled", at.config.embedding_scale != 1),
                            constant("kPositions", at.config.learned_positions), constant("kLeavesGained", gained)}},
                          gathered_embed_shape(rows_of(at), gained))},
          .emit = emits([form](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                               Residual& residual, RankPlace& ranks) {
            const int64_t stride = row_stride(step.config.hidden), values = step.s.rows * stride;
            const View<bf16> own = as_bf16(step.s.collective.given.subview(0, count_of(values)));
            const View<bf16> all =
                as_bf16(step.s.collective.gathered.subview(0, count_of(step.config.shard.ranks * values)));
            step.g.launch("embed_own", run.kernel<OwnEmbedding>(0),
                          {.in = step_tokens(step),
                           .embedding = weights.model.embedding().data,
                           .own = own,
                           .stride = stride,
                           .rank = step.config.shard.rank});
            all_gather(step, ranks, "embed_gather", own, all);
            auto args = embed_args<GatheredEmbed>(step, weights, residual, form);
            args.gathered = all;
            args.gathered_stride = values;
            step.g.launch("embed", run.kernel<GatheredEmbed>(1), args);
          })};
}

LoweredRun gathered_norm_of_heads(const LoweringContext& at) {
  const ModelConfig& config = at.config;
  std::vector<Constant> constants = {{"kHeads", config.heads},
                                     {"kKvHeads", config.kv_heads},
                                     {"kHeadDim", config.head_dim},
                                     constant("kNorm", config.norm)};
  const KernelChoice own = kernel_choice<OwnSquares>({"own_squares", constants}, own_squares_shape(rows_of(at)));
  constants.push_back(ranks_constant(at));
  return {.operations = 1,
          .kernels = {own, kernel_choice<GatheredNormHeads>({"gathered_norm_heads", constants},
                                                            gathered_norm_heads_shape(rows_of(at)))},
          .emit = emits([](const LoadedRun& run, const StepPlace& step, const StepWeights& weights, RankPlace& ranks) {
            const int64_t stride = step.config.qkv_width();
            const View<float> own = step.s.collective.given.subview(0, count_of(2 * step.s.rows));
            const View<float> all =
                step.s.collective.gathered.subview(0, count_of(2 * step.config.shard.ranks * step.s.rows));
            step.g.launch("norm_heads_own", run.kernel<OwnSquares>(0),
                          {.qkv = step.s.qkv, .squares = own, .n_live = step.s.inputs.n_live, .stride = stride});
            all_gather(step, ranks, "norm_heads_gather", own, all);
            step.g.launch("norm_heads", run.kernel<GatheredNormHeads>(1),
                          {.qkv = step.s.qkv,
                           .squares = all,
                           .q_gain = weights.layer->q_norm,
                           .k_gain = weights.layer->k_norm,
                           .n_live = step.s.inputs.n_live,
                           .stride = stride,
                           .rows = step.s.rows,
                           .eps = step.config.eps});
          })};
}

LoweredRun gathered_head(const LoweringContext& at) {
  const bool alike = at.config.vocab % at.config.shard.ranks == 0;  // all ranks leave as many of the largest
  LoweredRun lowered{
      .operations = 1,
      .emit = emits([alike](const LoadedRun& run, const StepPlace& step, HeadRows& head, RankPlace& ranks) {
        const bool best = alike && head.best.count > 0;
        const int64_t rows = step.s.sampled_rows;
        const uint64_t of_all = count_of(step.config.shard.ranks);
        const uint64_t count = count_of(rows * step.s.logits_part_stride);
        const View<float> gathered = step.s.collective.gathered.subview(0, of_all * count);
        all_gather(step, ranks, "logits_gather", step.s.logits_part, gathered);
        GatheredLogits args{.gathered = gathered,
                            .logits = step.s.logits,
                            .n_live = step.s.inputs.n_sampled,
                            .vocab = step.config.vocab,
                            .part_stride = step.s.logits_part_stride,
                            .logits_stride = step.s.logits_stride,
                            .rows = rows};
        const View<ScoredToken> all = step.s.team_best.subview(0, best ? of_all * head.best.count : 0);
        if (best) {
          const View<ScoredToken> of_ranks = step.s.collective.best.subview(0, of_all * head.best.count);
          all_gather(step, ranks, "best_gather", head.best, of_ranks);
          args.best = of_ranks;
          args.all_best = all;
          args.parts = static_cast<int64_t>(head.best.count) / rows;
        }
        step.g.launch("gather", run.kernel<GatheredLogits>(best ? 1 : 0), args);
        head.logits = step.s.logits;
        head.best = all;
      })};
  for (const bool best : {false, true})
    lowered.kernels.push_back(kernel_choice<GatheredLogits>(
        {"gathered_logits", {ranks_constant(at), constant("kBest", best)}},
        gathered_logits_shape(count_of(at.step.sampled_rows * at.config.shard.most_of(at.config.vocab)),
                              static_cast<unsigned>(at.device.sm_count))));
  return lowered;
}

}  // namespace nodewright
