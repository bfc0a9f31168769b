// The norm of queries and keys over the heads of all ranks of a team, in front of the kernels that rotate them.
#include "graph/team/team_plan.h"
#include "kernels_src/exchange/norm_heads_exchange.h"
#include "models/lowering/lowering_rows.h"

namespace nodewright {
namespace {

// `strips`: both, from the first on, or one.
void emit_strips(const LoadedRun& run, size_t kernel, Emission& e, const char* name, int64_t first, int64_t strips) {
  e.g.launch(name, run.kernel<NormHeadsExchange>(kernel),
             {.qkv = e.s.qkv,
              .q_gain = e.layer.weights->q_norm,
              .k_gain = e.layer.weights->k_norm,
              .n_live = e.s.inputs.n_live,
              .stride = e.config.qkv_width(),
              .first_strip = first,
              .eps = e.config.eps,
              .exchange = e.rank->exchange(count_of(e.s.rows * strips))});
}

}  // namespace

Attempt lower_norm_heads_exchange(const Situation& at, std::span<const Op> ops, Travel) {
  if (!begins(ops, {OpKind::shared_norm})) return {};
  if (at.step.collectives) return gathered_norm_of_heads(at);
  const ModelConfig& config = at.config;
  Lowered lowered{.operations = 1, .emit = [](const LoadedRun& run, Emission& e) {
                    if (!norms_heads_apart(e.config, e.layer.index)) return emit_strips(run, 0, e, "norm_heads", 0, 2);
                    emit_strips(run, 1, e, "norm_queries", 0, 1);
                    emit_strips(run, 1, e, "norm_keys", 1, 1);
                  }};
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
