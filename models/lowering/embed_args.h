// The arguments that embed, embed_exchange and gathered_embed share: a new residual stream begins with their rows.
#pragma once

#include "models/lowering/lowering.h"
#include "models/weights/row_stride.h"

namespace nodewright {

// Sets `residual` to what the kernel leaves. `Args`: of one of these.
template <class Args>
Args embed_args(const StepPlace& step, const StepWeights& weights, Residual& residual, ResidualForm form) {
  const DecodeState& s = step.s;
  Args args{};
  args.tokens = s.inputs.tokens;
  args.sequences = s.inputs.sequences;
  args.last_token = s.last_token;
  args.n_live = s.inputs.n_live;
  if constexpr (requires { args.embedding; }) args.embedding = weights.model.embedding().data;
  args.position_table = weights.model.positions().data;
  args.x = s.residual;
  args.stride = row_stride(step.config.hidden);
  args.vocab = step.config.vocab;
  args.scale = step.config.embedding_scale;
  if (step.config.learned_positions) args.positions = s.inputs.positions;
  residual = PlainResidual{s.residual};
  if (form == ResidualForm::gained) args.next = leave_gained(residual, s, weights.next_gain, 1);
  return args;
}

}  // namespace nodewright
