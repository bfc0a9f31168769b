// Mixtures of experts: which of them a row has, and their products, row by row or grouped by expert in tiles.
#include "kernels_src/experts/add_experts.h"
#include "kernels_src/experts/choose_experts.h"
#include "kernels_src/experts/expert_down.h"
#include "kernels_src/experts/expert_down_sum.h"
#include "kernels_src/experts/expert_gate_up.h"
#include "kernels_src/experts/expert_shape.h"
#include "kernels_src/experts/group_by_expert.h"
#include "kernels_src/residual/norm_rows.h"
#include "models/lowering/lowering_rows.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

constexpr const char* kOnlyPlain = "experts add to the residual as it is";
constexpr const char* kInTiles = "the step's rows are grouped by expert";
constexpr const char* kNotInTiles = "rows up to 2, and those of invariant numerics, have their experts one by one";

Constant single_row(const Situation& at) { return constant("kSingleRow", at.step.is_one_row()); }
Constant scale_of(const Situation& at) { return factor_constant("kScale", at.config.residual_scale); }

// `cols`, `outputs`: of an expert.
ExpertShape expert_shape(const Situation& at, int64_t cols, int64_t outputs) {
  return {at.step.rows, at.config.experts.count, at.config.experts.chosen, cols, row_stride(cols), outputs};
}
ExpertShape expert_shape(const Situation& at, const Op& product) {
  return expert_shape(at, product.cols, product.outputs);
}
template <int N>
std::vector<Constant> tile_constants(const ExpertTileShape& shape, const ShapeConstants<N>& others,
                                     const std::vector<Constant>& more = {}) {
  return constants_of(shape.constants(), constants_of(others, more));
}

// The product that norms, and the activation after it.
bool begins_gate_up(std::span<const Op> ops) {
  return begins(ops, {OpKind::norm, OpKind::expert_product, OpKind::activate});
}

// What the rows' experts give to the residual, of one device and of a part of a network.
bool begins_down(std::span<const Op> ops) { return begins(ops, {OpKind::expert_product, OpKind::add}); }
bool begins_split_down(std::span<const Op> ops) {
  return begins(ops, {OpKind::expert_product, OpKind::reduce, OpKind::add});
}

template <class Args, class Element>
void emit_tiles(const LoadedRun& run, Emission& e, size_t kernel, Part part, View<bf16> x, int64_t x_stride,
                View<Element> y, int64_t y_stride) {
  e.g.launch(std::string(to_string(part)), run.kernel<Args>(kernel),
             {.x = x,
              .pairs = e.s.experts.pairs,
              .jobs = e.s.experts.jobs,
              .n_jobs = e.s.experts.n_jobs,
              .weight = e.matrix(part).data,
              .y = y,
              .x_stride = x_stride,
              .y_stride = y_stride});
}

}  // namespace

// The experts of each row, and for tiles the rows of each expert.
Attempt lower_route(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::route})) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  const Experts& experts = at.config.experts;
  const Constant count{"kExperts", experts.count}, chosen{"kChosen", experts.chosen};
  Lowered lowered{.operations = 1,
                  .kernels = {kernel_choice<ChooseExperts>(
                      {"choose_experts", {count, chosen, constant("kNormalised", experts.normalised)}},
                      choose_experts_shape(at.step.rows))}};
  if (at.step.groups_by_expert()) {
    const ExpertTileShape shape{expert_shape(at, 0, 0)};
    lowered.kernels.push_back(kernel_choice<GroupByExpert>(
        {"group_by_expert",
         {count, chosen, {"kJobRows", shape.job_rows()}, {"kThreads", int64_t{shape.group_threads()}}}},
        shape.group_launch()));
  }
  lowered.emit = [](const LoadedRun& run, Emission& e) {
    const ExpertState& s = e.s.experts;
    e.g.launch("route", run.kernel<ChooseExperts>(),
               {.logits = s.logits, .experts = s.chosen, .weights = s.weights, .n_live = e.s.inputs.n_live});
    if (run.kernels.size() > 1)
      e.g.launch(
          "group", run.kernel<GroupByExpert>(1),
          {.experts = s.chosen, .n_live = e.s.inputs.n_live, .pairs = s.pairs, .jobs = s.jobs, .n_jobs = s.n_jobs});
  };
  return lowered;
}

// y = f(gate) * up of norm(x), by tiles. A library's step has normed rows, for the router; others norm them here.
Attempt lower_tile_expert_gate_up(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins_gate_up(ops)) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  if (!at.step.groups_by_expert()) return kNotInTiles;
  const Op &norm = ops[0], &product = ops[1];
  const ExpertTileShape shape{expert_shape(at, product)};
  Lowered lowered{.operations = 3,
                  .kernels = {kernel_choice<ExpertGateUp>(
                      {"tile_expert_gate_up",
                       tile_constants(shape, shape.tile_constants(), {constant("kActivation", at.config.activation)})},
                      shape.launch_shape(at.device.sm_count))}};
  if (!at.step.with_products())
    lowered.kernels.push_back(
        kernel_choice<NormRows>({"norm_rows", {constant("kNorm", norm.norm), {"kCols", at.config.hidden}}},
                                norm_rows_shape(static_cast<unsigned>(at.step.rows))));
  lowered.emit = [norm, product](const LoadedRun& run, Emission& e) {
    if (run.kernels.size() > 1)
      e.g.launch("feed_forward_norm", run.kernel<NormRows>(1),
                 {.x = e.s.residual,
                  .gain = e.norm(norm.part).gain,
                  .y = e.s.normed,
                  .n_live = e.s.inputs.n_live,
                  .eps = e.config.eps,
                  .shift = {}});
    emit_tiles<ExpertGateUp>(run, e, 0, product.part, e.s.normed, row_stride(product.cols), e.s.activated,
                             e.matrix(Part::down).stride);
  };
  return lowered;
}

Attempt lower_norm_expert_gate_up(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins_gate_up(ops)) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  if (at.step.groups_by_expert()) return kInTiles;
  const Op &norm = ops[0], &product = ops[1];
  const ExpertRowsShape shape{expert_shape(at, product)};
  return Lowered{
      .operations = 3,
      .kernels = {kernel_choice<NormExpertGateUp>(
          {"norm_expert_gate_up", constants_of(shape.constants(), {single_row(at), constant("kNorm", norm.norm),
                                                                   constant("kActivation", at.config.activation)})},
          shape.gate_up_launch(at.device.sm_count))},
      .emit = [norm, product](const LoadedRun& run, Emission& e) {
        e.g.launch(std::string(to_string(product.part)), run.kernel<NormExpertGateUp>(),
                   {.x = e.s.residual,
                    .gain = e.norm(norm.part).gain,
                    .experts = e.s.experts.chosen,
                    .weight = e.matrix(product.part).data,
                    .y = e.s.activated,
                    .n_live = e.s.inputs.n_live,
                    .y_stride = e.matrix(Part::down).stride,
                    .eps = e.config.eps});
      }};
}

// x += the weighted sum over experts of W y: tiles leave what each gives, a second kernel adds them.
Attempt lower_tile_expert_down(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins_down(ops)) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  if (!at.step.groups_by_expert()) return kNotInTiles;
  const Op& product = ops[0];
  const ExpertTileShape shape{expert_shape(at, product)};
  return Lowered{
      .operations = 2,
      .kernels = {kernel_choice<ExpertDown>({"tile_expert_down", tile_constants(shape, shape.tile_constants())},
                                            shape.launch_shape(at.device.sm_count)),
                  kernel_choice<AddExperts>({"add_experts", {{"kChosen", shape.chosen}, scale_of(at)}},
                                            add_experts_shape(at.step.rows, product.outputs))},
      .emit = [product](const LoadedRun& run, Emission& e) {
        const int64_t stride = row_stride(product.outputs);
        emit_tiles<ExpertDown>(run, e, 0, product.part, e.s.activated, e.matrix(product.part).stride, e.s.experts.given,
                               stride);
        e.g.launch("add_experts", run.kernel<AddExperts>(1),
                   {.y = e.s.experts.given,
                    .weights = e.s.experts.weights,
                    .residual = e.s.residual,
                    .n_live = e.s.inputs.n_live,
                    .cols = product.outputs,
                    .stride = stride});
      }};
}

Attempt lower_expert_down_add(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins_down(ops)) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  if (at.step.groups_by_expert()) return kInTiles;
  const Op& product = ops[0];
  const ExpertRowsShape shape{expert_shape(at, product)};
  return Lowered{
      .operations = 2,
      .kernels = {kernel_choice<ExpertDownAdd>(
          {"expert_down_add", constants_of(shape.constants(), constants_of(shape.down_constants(at.device.sm_count),
                                                                           {single_row(at), scale_of(at)}))},
          shape.down_launch(at.device.sm_count))},
      .emit = [product](const LoadedRun& run, Emission& e) {
        e.g.launch(std::string(to_string(product.part)), run.kernel<ExpertDownAdd>(),
                   {.x = e.s.activated,
                    .experts = e.s.experts.chosen,
                    .weights = e.s.experts.weights,
                    .weight = e.matrix(product.part).data,
                    .residual = e.s.residual,
                    .n_live = e.s.inputs.n_live,
                    .x_stride = e.matrix(product.part).stride,
                    .residual_stride = row_stride(product.outputs)});
      }};
}

// The same of a part of a network: what its columns of W give is added over the ranks, in a node of its own.
Attempt lower_tile_expert_down_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins_split_down(ops)) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  if (!at.step.groups_by_expert()) return kNotInTiles;
  const Op& product = ops[0];
  const ExpertTileShape shape{expert_shape(at, product)};
  const ExchangedSum sum{.bulk = sends_bulk(at.config, at.step, travel), .chosen = shape.chosen};
  return Lowered{.operations = 3,
                 .kernels = with_exchange(
                     at, sum, travel,
                     kernel_choice<ExpertDown>({"tile_expert_down", tile_constants(shape, shape.tile_constants())},
                                               shape.launch_shape(at.device.sm_count))),
                 .emit = [product, sum, travel](const LoadedRun& run, Emission& e) {
                   emit_tiles<ExpertDown>(run, e, 0, product.part, e.s.activated, e.matrix(product.part).stride,
                                          e.s.experts.given, row_stride(product.outputs));
                   emit_exchange(run, 1, e, product, e.s.experts.given, sum, travel);
                 }};
}

Attempt lower_expert_down_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins_split_down(ops)) return {};
  if (travel != Travel::plain) return kOnlyPlain;
  if (at.step.groups_by_expert()) return kInTiles;
  const Op& product = ops[0];
  const ExpertRowsShape shape{expert_shape(at, product)};
  const ExchangedSum sum;
  return Lowered{
      .operations = 3,
      .kernels = with_exchange(
          at, sum, travel,
          kernel_choice<ExpertDownSum>(
              {"expert_down_sum", constants_of(shape.constants(), constants_of(shape.down_constants(at.device.sm_count),
                                                                               {single_row(at)}))},
              shape.down_launch(at.device.sm_count))),
      .emit = [product, sum, travel](const LoadedRun& run, Emission& e) {
        e.g.launch(std::string(to_string(product.part)), run.kernel<ExpertDownSum>(),
                   {.x = e.s.activated,
                    .experts = e.s.experts.chosen,
                    .weights = e.s.experts.weights,
                    .weight = e.matrix(product.part).data,
                    .y = e.s.partial,
                    .n_live = e.s.inputs.n_live,
                    .x_stride = e.matrix(product.part).stride,
                    .y_stride = row_stride(product.outputs)});
        emit_exchange(run, 1, e, product, e.s.partial, sum, travel);
      }};
}

}  // namespace nodewright
