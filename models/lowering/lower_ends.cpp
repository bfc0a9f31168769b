// The ends of a step: the rows of the embedding, the hidden states and logits, and the choice of a token.
#include "kernels_src/residual/embed.h"
#include "kernels_src/residual/norm_hidden.h"
#include "kernels_src/sampling/logit_row.h"
#include "kernels_src/sampling/sample.h"
#include "models/lowering/embed_args.h"
#include "models/lowering/lowering_rows.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

void emit_embed(const LoadedRun& run, const StepPlace& step, const StepWeights& weights, Residual& residual,
                ResidualForm form) {
  const auto args = embed_args<Embed>(step, weights, residual, form);
  const uint64_t gained = form == ResidualForm::gained ? step.s.gained.bytes() : 0;
  step.g.launch(
      "embed", run.kernel<Embed>(), args,
      {.traffic = Traffic{sizeof(bf16) * count_of(step.s.rows * args.to.stride), step.s.residual.bytes() + gained}});
}

void emit_sample(const LoadedRun& run, const StepPlace& step, const HeadRows& head) {
  const StepInputs& in = step.s.inputs;
  step.g.launch("sample", run.kernel<Sample>(),
                {.logits = head.logits,
                 .best = head.best,
                 .sequences = in.sequences,
                 .temperature = in.temperature,
                 .min_p = in.min_p,
                 .top_k = in.top_k,
                 .top_p = in.top_p,
                 .seed = in.seed,
                 .output_index = in.output_index,
                 .n_live = in.n_sampled,
                 .tokens = step.s.tokens,
                 .last_token = step.s.last_token,
                 .delivered = head.delivered,
                 .vocab = step.config.vocab,
                 .logits_stride = step.s.logits_stride});
}

}  // namespace

LoweringResult lower_embed(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::embed})) return {};
  const bool gained = form == ResidualForm::gained;
  return LoweredRun{.operations = 1,
                    .kernels = {kernel_choice<Embed>(
                        {"embed",
                         {constant("kScaled", at.config.embedding_scale != 1),
                          constant("kPositions", at.config.learned_positions), constant("kLeavesGained", gained)}},
                        embed_shape(static_cast<unsigned>(at.step.rows), gained))},
                    .emit = emits([form](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                         Residual& residual) { emit_embed(run, step, weights, residual, form); })};
}

LoweringResult lower_hidden(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::hand_out})) return {};
  return LoweredRun{
      .operations = 1,
      .kernels = {kernel_choice<NormHidden>(
          {"norm_hidden", {constant("kNorm", ops[0].norm), constant("kPostNorm", form == ResidualForm::deferred)}},
          norm_hidden_shape(static_cast<unsigned>(at.step.hidden_rows())))},
      .emit = emits([all = at.step.hidden == HiddenStates::full](const LoadedRun& run, const StepPlace& step,
                                                                 const StepWeights& weights, const Residual& residual) {
        const DecodeState& s = step.s;
        step.g.launch("hidden", run.kernel<NormHidden>(),
                      {.from = residual_in(not_gained(residual, step), weights.model.final_norm(), step.config.eps),
                       .y = s.hidden,
                       .n_live = all ? s.inputs.n_live : s.inputs.n_sampled,
                       .stride = row_stride(step.config.hidden)});
      })};
}

LoweringResult lower_sample(const LoweringContext& at, std::span<const Op> ops, ResidualForm) {
  if (!begins(ops, {OpKind::choose})) return {};
  const auto sampled = static_cast<unsigned>(at.step.sampled_rows);
  const unsigned blocks =
      blocks_of_logit_row(sampled, static_cast<unsigned>(at.device.sm_count), at.device.cluster_blocks());
  return LoweredRun{
      .operations = 1,
      .kernels = {kernel_choice<Sample>({"sample", {constant("kBlocksOfRow", blocks)}}, sample_shape(sampled, blocks))},
      .emit = emits(emit_sample)};
}

}  // namespace nodewright
