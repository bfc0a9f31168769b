// The arguments that embed, embed_exchange and gathered_embed share: a new residual stream begins with their rows.
#pragma once

#include "models/lowering/lowering.h"
#include "models/weights/row_stride.h"

namespace nodewright {

inline StepTokens step_tokens(const StepPlace& step) {
  const StepInputs& in = step.s.inputs;
  return {in.tokens, in.sequences, step.s.last_token, in.n_live, step.config.vocab};
}

// Sets `residual` to what the kernel leaves. `Args`: Embed or GatheredEmbed.
template <class Args>
Args embed_args(const StepPlace& step, const StepWeights& weights, Residual& residual, ResidualForm form) {
  const DecodeState& s = step.s;
  Args args{};
  args.in = step_tokens(step);
  if constexpr (requires { args.embedding; }) args.embedding = weights.model.embedding().data;
  args.to = {.position_table = weights.model.positions().data,
             .x = s.residual,
             .stride = row_stride(step.config.hidden),
             .scale = step.config.embedding_scale};
  if (step.config.learned_positions) args.to.positions = s.inputs.positions;
  residual = PlainResidual{s.residual};
  if (form == ResidualForm::gained) args.to.next = leave_gained(residual, s, weights.next_gain, 1);
  return args;
}

}  // namespace nodewright
