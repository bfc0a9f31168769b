// Where the ranks of a team need each other's values: the embedding's rows, the sums after out and down, the logits.
#include <algorithm>

#include "graph/team/team_plan.h"
#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/exchange/gather_logits.h"
#include "models/lowering/embed_args.h"
#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"

namespace nodewright {
namespace {

template <class Args>
void launch_exchange_add(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y,
                         const ExchangedSum& of) {
  const auto loaded = run.kernel<Args>(kernel);
  const StepPlace& step = p.step;
  Args args{};
  ExchangeAdd& add = without_adapter(args);
  add.own = own_in(p, y, of);
  add.exchange = of.bulk ? p.ranks.packets->bulk_exchange(p.values()) : p.ranks.packets->exchange(p.values());
  fill_sum(add.to, of.to, loaded.shape.grid[0], p);
  if constexpr (requires { args.adapter; }) args.adapter = adapter_in(p.adapters, step.s, of.to.product.part);
  NodeOptions how;
  // A lane's few blocks come before what the other lane's products have left.
  if (of.is_lane) how.attributes.priority = step.g.device().properties().greatest_priority;
  step.g.launch(node_name(of.to.product) + "_sum", loaded, args, how);
}

KernelChoice exchange_add_choice(const LoweringContext& at, const ExchangedSum& of) {
  const bool gained = of.to.form == ResidualForm::gained, sums_more = of.adapted || of.chosen > 0;
  const auto ranks = static_cast<unsigned>(at.config.shard.ranks), sm_count = static_cast<unsigned>(at.device.sm_count);
  std::vector<Constant> constants = {ranks_constant(at),
                                     constant("kAdds", of.to.adds()),
                                     constant("kBias", of.bias),
                                     scale_constant(at, of.to),
                                     constant("kLeavesGained", gained),
                                     constant("kBulk", !of.bulk          ? 0
                                                       : at.step.is_lane ? lane_exchange_multiple(ranks, sums_more)
                                                                         : 1),
                                     {"kChosen", of.chosen}};
  if (of.adapted) constants.push_back(rank_constant(at));
  const LaunchShape shape =
      of.bulk
          ? exchange_bulk_shape(count_of(at.step.rows * at.config.hidden), ranks, sm_count, sums_more, at.step.is_lane)
          : exchange_add_shape(static_cast<unsigned>(at.step.rows), static_cast<unsigned>(at.config.hidden), ranks,
                               sm_count, gained, sums_more);
  return of.adapted ? kernel_choice<AdaptedExchangeAdd>({"adapted_exchange_add", constants}, shape)
                    : kernel_choice<ExchangeAdd>({"exchange_add", constants}, shape);
}

}  // namespace

bool sends_bulk(const ModelConfig& config, const StepShape& step, ResidualForm form) {
  return step.with_products() && form != ResidualForm::gained && config.hidden % 8 == 0;
}

std::vector<KernelChoice> exchange_choices(const LoweringContext& at, const ExchangedSum& of, const TileOrder& order) {
  if (at.step.collectives) return gathered_sum_choices(at, of, order);
  return {exchange_add_choice(at, of)};
}

void emit_exchange(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y, const ExchangedSum& of) {
  if (p.ranks.calls != nullptr) return emit_gathered_sum(run, kernel, p, y, of);
  if (of.adapted) return launch_exchange_add<AdaptedExchangeAdd>(run, kernel, p, y, of);
  launch_exchange_add<ExchangeAdd>(run, kernel, p, y, of);
}

LoweringResult lower_embed_exchange(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::embed_shared})) return {};
  if (at.step.collectives) return gathered_embedding(at, form);
  const bool gained = form == ResidualForm::gained;
  return LoweredRun{.operations = 1,
                    .kernels = {kernel_choice<EmbedExchange>(
                        {"embed_exchange",
                         {ranks_constant(at), constant("kScaled", at.config.embedding_scale != 1),
                          constant("kPositions", at.config.learned_positions), constant("kLeavesGained", gained)}},
                        embed_exchange_shape(static_cast<unsigned>(at.step.rows),
                                             static_cast<unsigned>(at.device.sm_count), gained))},
                    .emit = emits([form](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                         Residual& residual, RankPlace& ranks) {
                      const Embed embed = embed_args<Embed>(step, weights, residual, form);
                      step.g.launch("embed", run.kernel<EmbedExchange>(),
                                    {embed, ranks.packets->exchange(1 + count_of(step.s.rows * embed.to.stride))});
                    })};
}

// The largest logits of the head's blocks, where it leaves them, are gathered if all ranks have as many.
LoweringResult lower_gather(const LoweringContext& at, std::span<const Op> ops, ResidualForm) {
  if (!begins(ops, {OpKind::gather})) return {};
  if (at.step.collectives) return gathered_head(at);
  const int64_t most = at.config.shard.most_of(at.config.vocab);
  const bool alike = at.config.vocab % at.config.shard.ranks == 0;
  LoweredRun lowered{
      .operations = 1,
      .emit = emits([most, alike](const LoadedRun& run, const StepPlace& step, HeadRows& head, RankPlace& ranks) {
        const bool best = alike && head.best.count > 0;
        const int64_t rows = step.s.sampled_rows;
        const uint64_t parts = best ? head.best.count / count_of(rows) : 0;
        GatherLogits args{.part = head.logits,
                          .logits = step.s.logits,
                          .n_live = step.s.inputs.n_sampled,
                          .vocab = step.config.vocab,
                          .most = most,
                          .parts = static_cast<int64_t>(parts),
                          .part_stride = step.s.logits_part_stride,
                          .logits_stride = step.s.logits_stride,
                          .rows = rows,
                          .exchange = ranks.packets->exchange(count_of(rows * most) + 2 * count_of(rows) * parts)};
        const View<ScoredToken> all = step.s.team_best.subview(0, count_of(rows * step.config.shard.ranks) * parts);
        if (best) {
          args.best = head.best;
          args.all_best = all;
          args.temperature = step.s.inputs.temperature;
          args.keeps_all = step.s.inputs.keeps_logits;
        }
        step.g.launch("gather", run.kernel<GatherLogits>(best ? 1 : 0), args);
        head.logits = step.s.logits;
        head.best = all;
      })};
  for (const bool best : {false, true})
    lowered.kernels.push_back(kernel_choice<GatherLogits>(
        {"gather_logits", {ranks_constant(at), constant("kBest", best)}},
        gather_logits_shape(count_of(at.step.sampled_rows * most), static_cast<unsigned>(at.device.sm_count))));
  return lowered;
}

}  // namespace nodewright
