// The ends of a step: the rows of the embedding, the hidden states and logits, and the choice of a token.
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/residual/embed.h"
#include "kernels_src/residual/norm_hidden.h"
#include "kernels_src/sampling/logit_row.h"
#include "kernels_src/sampling/sample.h"
#include "models/lowering/embed_args.h"
#include "models/lowering/lowering_rows.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

void emit_embed(const LoadedRun& run, Emission& e, Travel travel) {
  const auto args = embed_args<Embed>(e, travel);
  const uint64_t gained = travel == Travel::gained ? e.s.gained.bytes() : 0;
  e.g.launch("embed", run.kernel<Embed>(), args,
             Traffic{sizeof(bf16) * count_of(e.s.rows * args.stride), e.s.residual.bytes() + gained});
}

// As a kernel reads the residual that takes no gained one.
Residual not_gained(const Emission& e) {
  return std::holds_alternative<GainedResidual>(e.residual) ? PlainResidual{e.s.residual} : e.residual;
}

// `parts`: blocks that each leave the largest logit of a row, or 0.
void emit_logits(const LoadedRun& run, Emission& e, bool gained, bool tiled) {
  const auto kernel = run.kernel<NormProject>();
  const bool leaves_best = tiled || e.step.is_one_row();
  const uint64_t parts = leaves_best ? kernel.shape.grid[0] : 0;
  e.best = e.s.best.subview(0, count_of(e.s.sampled_rows) * parts);
  e.logits = e.s.logits_part;
  NormProject args{.from = residual_in(gained ? e.residual : not_gained(e), e.weights.final_norm()),
                   .weight = e.weights.head().data,
                   .bias = e.weights.head().bias,
                   .y = e.s.logits_part,
                   .best = e.best,
                   .n_live = e.s.inputs.n_sampled,
                   .outputs = e.config.head_rows(),
                   .y_stride = e.s.logits_part_stride,
                   .eps = e.config.eps};
  // May leave out what no choice reads; where not all ranks have as many, the choice reads all.
  if (leaves_best && !e.step.is_one_row() && e.config.vocab % e.config.shard.ranks == 0) {
    args.temperature = e.s.inputs.temperature;
    args.keeps_all = e.s.inputs.keeps_logits;
  }
  e.g.launch("logits", kernel, args);
}

void emit_hidden(const LoadedRun& run, Emission& e) {
  e.g.launch("hidden", run.kernel<NormHidden>(),
             {.from = residual_in(not_gained(e), e.weights.final_norm()),
              .y = e.s.hidden,
              .n_live = e.step.hidden == HiddenStates::full ? e.s.inputs.n_live : e.s.inputs.n_sampled,
              .stride = row_stride(e.config.hidden),
              .eps = e.config.eps});
}

void emit_sample(const LoadedRun& run, Emission& e) {
  const StepInputs& in = e.s.inputs;
  e.g.launch("sample", run.kernel<Sample>(),
             {.logits = e.logits,
              .best = e.best,
              .sequences = in.sequences,
              .temperature = in.temperature,
              .min_p = in.min_p,
              .top_k = in.top_k,
              .top_p = in.top_p,
              .seed = in.seed,
              .output_index = in.output_index,
              .n_live = in.n_sampled,
              .tokens = e.s.tokens,
              .last_token = e.s.last_token,
              .delivered = e.delivered,
              .vocab = e.config.vocab,
              .logits_stride = e.s.logits_stride});
}

bool is_head(std::span<const Op> ops) {
  return begins(ops, {OpKind::norm, OpKind::product}) && ops[1].part == Part::head;
}

Attempt logits_of(const Situation& at, std::variant<KernelChoice, std::string> choice, bool gained, bool tiled) {
  if (auto* why = std::get_if<std::string>(&choice)) return *why;
  auto kernel = std::get<KernelChoice>(std::move(choice));
  if (at.step.is_one_row()) kernel.shape = with_best(kernel.shape);
  return Lowered{.operations = 2,
                 .kernels = {std::move(kernel)},
                 .emit = [gained, tiled](const LoadedRun& run, Emission& e) { emit_logits(run, e, gained, tiled); }};
}

InputNorm norm_of_head(const Op& norm, Travel travel) {
  return {travel == Travel::deferred ? Norms::post_and_own : Norms::own, norm.norm};
}

}  // namespace

Attempt lower_embed(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::embed})) return {};
  const bool gained = travel == Travel::gained;
  return Lowered{.operations = 1,
                 .kernels = {kernel_choice<Embed>(
                     {"embed",
                      {constant("kScaled", at.config.embedding_scale != 1),
                       constant("kPositions", at.config.learned_positions), constant("kLeavesGained", gained)}},
                     embed_shape(static_cast<unsigned>(at.step.rows), gained))},
                 .emit = [travel](const LoadedRun& run, Emission& e) { emit_embed(run, e, travel); }};
}

Attempt lower_tile_logits_gained(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!is_head(ops)) return {};
  if (travel != Travel::gained) return "the residual does not come times the next gain";
  if ((at.step.sampled_rows + 7) / 8 != (at.step.rows + 7) / 8) return "its squares are of more rows";
  if (at.step.tuning.head.product.algorithm != 0) return "a library's product was measured to be faster";
  return logits_of(at,
                   tiled(at, "norm_project", ops[1], 1, {Norms::gained, ops[0].norm}, at.step.sampled_rows,
                         logit_constants(at.config), sizeof(NormProject)),
                   true, true);
}

Attempt lower_tile_logits(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!is_head(ops)) return {};
  if (at.step.has_head_product()) return "the step's head is a library's product";
  return logits_of(at,
                   tiled(at, "norm_project", ops[1], 1, norm_of_head(ops[0], travel), at.step.sampled_rows,
                         logit_constants(at.config), sizeof(NormProject)),
                   false, true);
}

Attempt lower_logits(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!is_head(ops)) return {};
  if (at.step.has_head_product()) return "the step's head is a library's product";
  std::vector<Constant> constants = logit_constants(at.config);
  constants.push_back(constant("kBias", ops[1].bias));
  return logits_of(at,
                   matvec(at, "norm_project", ops[1], 1, norm_of_head(ops[0], travel), at.step.sampled_rows,
                          logit_constants(at.config), sizeof(NormProject)),
                   false, false);
}

Attempt lower_hidden(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::hand_out})) return {};
  return Lowered{
      .operations = 1,
      .kernels = {kernel_choice<NormHidden>(
          {"norm_hidden", {constant("kNorm", ops[0].norm), constant("kPostNorm", travel == Travel::deferred)}},
          norm_hidden_shape(static_cast<unsigned>(at.step.hidden_rows())))},
      .emit = emit_hidden};
}

Attempt lower_sample(const Situation& at, std::span<const Op> ops, Travel) {
  if (!begins(ops, {OpKind::choose})) return {};
  const auto sampled = static_cast<unsigned>(at.step.sampled_rows);
  const unsigned blocks =
      at.device.has_clusters() ? blocks_of_logit_row(sampled, static_cast<unsigned>(at.device.sm_count)) : 1;
  return Lowered{
      .operations = 1,
      .kernels = {kernel_choice<Sample>({"sample", {constant("kBlocksOfRow", blocks)}}, sample_shape(sampled, blocks))},
      .emit = emit_sample};
}

}  // namespace nodewright
