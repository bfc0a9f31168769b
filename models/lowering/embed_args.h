// The arguments that embed, embed_exchange and gathered_embed share: a new residual stream begins with their rows.
#pragma once

#include "models/lowering/lowering.h"
#include "models/weights/row_stride.h"

namespace nodewright {

// Sets e.residual to what the kernel leaves. `Args`: of one of these.
template <class Args>
Args embed_args(Emission& e, Travel travel) {
  Args args{};
  args.tokens = e.s.inputs.tokens;
  args.sequences = e.s.inputs.sequences;
  args.last_token = e.s.last_token;
  args.n_live = e.s.inputs.n_live;
  if constexpr (requires { args.embedding; }) args.embedding = e.weights.embedding().data;
  args.position_table = e.weights.positions().data;
  args.x = e.s.residual;
  args.stride = row_stride(e.config.hidden);
  args.vocab = e.config.vocab;
  args.scale = e.config.embedding_scale;
  if (e.config.learned_positions) args.positions = e.s.inputs.positions;
  e.residual = PlainResidual{e.s.residual};
  if (travel == Travel::gained) {
    const GainedResidual gained{e.s.gained, e.squares(1)};
    args.next = {e.layer.next_gain, gained.gained, gained.squares};
    e.residual = gained;
  }
  return args;
}

}  // namespace nodewright
