// The norm of queries and keys over the heads of all ranks of a team, in front of the kernels that rotate them.
#include "graph/team/team_plan.h"
#include "kernels_src/exchange/norm_heads_exchange.h"
#include "models/lowering/lowering_rows.h"

namespace nodewright {
namespace {

// `strips`: both, from the first on, or one.
void emit_strips(const LoadedRun& run, size_t kernel, const StepPlace& step, const StepWeights& weights, TeamRank& rank,
                 const char* name, int64_t first, int64_t strips) {
  step.g.launch(name, run.kernel<NormHeadsExchange>(kernel),
                {.qkv = step.s.qkv,
                 .q_gain = weights.layer->q_norm,
                 .k_gain = weights.layer->k_norm,
                 .n_live = step.s.inputs.n_live,
                 .stride = step.config.qkv_width(),
                 .first_strip = first,
                 .eps = step.config.eps,
                 .exchange = rank.exchange(count_of(step.s.rows * strips))});
}

}  // namespace

LoweringResult lower_norm_heads_exchange(const LoweringContext& at, std::span<const Op> ops, ResidualForm) {
  if (!begins(ops, {OpKind::shared_norm})) return {};
  if (at.step.collectives) return gathered_norm_of_heads(at);
  const ModelConfig& config = at.config;
  LoweredRun lowered{
      .operations = 1,
      .emit = emits([](const LoadedRun& run, const StepPlace& step, const StepWeights& weights, RankPlace& ranks) {
        const auto strips = [&](size_t kernel, const char* name, int64_t first, int64_t count) {
          emit_strips(run, kernel, step, weights, *ranks.packets, name, first, count);
        };
        if (!norms_heads_apart(step.config, weights.index)) return strips(0, "norm_heads", 0, 2);
        strips(1, "norm_queries", 0, 1);
        strips(1, "norm_keys", 1, 1);
      })};
  for (const unsigned strips : {2u, 1u})
    lowered.kernels.push_back(
        kernel_choice<NormHeadsExchange>({"norm_heads_exchange",
                                          {{"kRanks", config.shard.ranks},
                                           {"kHeads", config.heads},
                                           {"kKvHeads", config.kv_heads},
                                           {"kHeadDim", config.head_dim},
                                           constant("kNorm", config.norm)}},
                                         norm_heads_exchange_shape(static_cast<unsigned>(at.step.rows), strips,
                                                                   static_cast<unsigned>(at.device.sm_count))));
  return lowered;
}

}  // namespace nodewright
