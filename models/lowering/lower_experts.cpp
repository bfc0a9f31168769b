// Mixtures of experts: which of them a row has, and their products, row by row or grouped by expert in tiles.
#include <cmath>

#include "kernels_src/experts/add_experts.h"
#include "kernels_src/experts/choose_experts.h"
#include "kernels_src/experts/expert_shape.h"
#include "kernels_src/experts/expert_tiles.h"
#include "kernels_src/experts/group_by_expert.h"
#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

constexpr const char* kOnlyPlain = "experts add to the residual as it is";
constexpr const char* kInTiles = "the step's rows are grouped by expert";
constexpr const char* kNotInTiles = "rows up to 2, and those of invariant numerics, have their experts one by one";

Constant single_row(const LoweringContext& at) { return constant("kSingleRow", at.step.is_one_row()); }

ExpertShape expert_shape(const LoweringContext& at, const Op& product) {
  const Experts& experts = at.config.experts;
  return {at.step.rows,    experts.count,  experts.chosen, product.cols, row_stride(product.cols),
          product.outputs, product.weights};
}
std::vector<Constant> expert_constants(const ExpertShape& shape, std::vector<Constant> more) {
  if (shape.weights.is_quantized()) more = constants_of(shape.weights.constants(), std::move(more));
  return constants_of(shape.constants(), std::move(more));
}
std::vector<Constant> tile_constants(const ExpertTileShape& shape, std::vector<Constant> more = {}) {
  return expert_constants(shape, constants_of(shape.tile_constants(), std::move(more)));
}

// The experts' matrices, and what says which of them a row has.
template <class Args>
Args expert_args(const StepPlace& step, const StepWeights& weights, const Op& product) {
  const ExpertState& experts = step.s.experts;
  Args args = product_args<Args>(step, weights, product);
  if constexpr (requires { args.experts; }) args.experts = experts.chosen;
  if constexpr (requires { args.weights; }) args.weights = experts.weights;
  if constexpr (requires { args.pairs; })
    args.pairs = experts.pairs, args.jobs = experts.jobs, args.n_jobs = experts.n_jobs;
  return args;
}

// A product of experts reads those that its rows choose, evenly and independently (DecoderWeights::bytes_of_step).
NodeOptions expert_traffic(const StepPlace& step, const WeightMatrix& matrix, uint64_t read_bytes,
                           uint64_t written_bytes) {
  const Experts& experts = step.config.experts;
  const double left_out = std::pow(1 - static_cast<double>(experts.chosen) / static_cast<double>(experts.count),
                                   static_cast<double>(step.s.rows));
  const auto weights = static_cast<uint64_t>((1 - left_out) * static_cast<double>(matrix.data.bytes()));
  return {.traffic = Traffic{weights + read_bytes, written_bytes}};
}

// x += the weighted sum over experts of W y, by rows; or that sum alone, for an exchange after it.
template <class Args>
KernelChoice down_by_rows(const LoweringContext& at, const ExpertRowsShape& shape, const char* name,
                          std::vector<Constant> constants) {
  return kernel_choice<Args>(
      {name, expert_constants(shape, constants_of(shape.down_constants(at.device.sm_count), std::move(constants)))},
      shape.down_launch(at.device.sm_count));
}

LoweredRun gate_up_in_tiles(const LoweringContext& at, const ProductSpec& spec, const ExpertTileShape& shape) {
  LoweredRun lowered{
      .operations = spec.operations,
      .kernels = {kernel_choice<ExpertGateUp>(
          {"tile_expert_gate_up", tile_constants(shape, {constant("kActivation", at.config.activation)})},
          shape.launch_shape(at.device.sm_count))}};
  // A library's step has normed rows, for the router; others norm them here.
  if (!at.step.with_products()) lowered.kernels.push_back(norm_rows_choice(at, *spec.norm, false));
  lowered.emit = emits([norm = *spec.norm, product = spec.product](const LoadedRun& run, const StepPlace& step,
                                                                   const StepWeights& weights, Residual& residual) {
    if (run.kernels.size() > 1) emit_norm_rows(run.kernel<NormRows>(1), step, weights, residual, norm);
    auto args = expert_args<ExpertGateUp>(step, weights, product);
    args.from = {step.s.normed, row_stride(product.cols)};
    args.to = activated_out(step, weights);
    step.g.launch(std::string(to_string(product.part)), run.kernel<ExpertGateUp>(), args,
                  expert_traffic(step, weights.matrix(product.part), step.s.normed.bytes(), step.s.activated.bytes()));
  });
  return lowered;
}

LoweredRun gate_up_by_rows(const LoweringContext& at, const ProductSpec& spec, const ExpertRowsShape& shape) {
  return {.operations = spec.operations,
          .kernels = {kernel_choice<NormExpertGateUp>(
              {"norm_expert_gate_up", expert_constants(shape, {single_row(at), constant("kNorm", spec.norm->norm),
                                                               constant("kActivation", at.config.activation)})},
              shape.gate_up_launch(at.device.sm_count))},
          .emit = emits([norm = *spec.norm, product = spec.product](const LoadedRun& run, const StepPlace& step,
                                                                    const StepWeights& weights) {
            auto args = expert_args<NormExpertGateUp>(step, weights, product);
            args.x = step.s.residual;
            args.gain = weights.norm(norm.part).gain;
            args.eps = step.config.eps;
            args.to = activated_out(step, weights);
            step.g.launch(
                std::string(to_string(product.part)), run.kernel<NormExpertGateUp>(), args,
                expert_traffic(step, weights.matrix(product.part), step.s.residual.bytes(), step.s.activated.bytes()));
          })};
}

// What each expert of a row gives.
View<float> emit_down_in_tiles(const LoadedRun& run, const Op& product, const StepPlace& step,
                               const StepWeights& weights) {
  auto args = expert_args<ExpertDown>(step, weights, product);
  args.to = {step.s.experts.given, row_stride(product.outputs)};
  step.g.launch(
      std::string(to_string(product.part)), run.kernel<ExpertDown>(), args,
      expert_traffic(step, weights.matrix(product.part), step.s.activated.bytes(), step.s.experts.given.bytes()));
  return step.s.experts.given;
}

// Why the experts of this step are not multiplied so, or nothing.
std::string why_not_experts(const LoweringContext& at, ResidualForm form, bool tiles) {
  if (form != ResidualForm::plain) return kOnlyPlain;
  if (tiles == at.step.groups_by_expert()) return {};
  return tiles ? kNotInTiles : kInTiles;
}

}  // namespace

// The experts of each row, and for tiles the rows of each expert.
LoweringResult lower_route(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::route})) return {};
  if (form != ResidualForm::plain) return kOnlyPlain;
  const Experts& experts = at.config.experts;
  const Constant count{"kExperts", experts.count}, chosen{"kChosen", experts.chosen};
  LoweredRun lowered{.operations = 1,
                     .kernels = {kernel_choice<ChooseExperts>(
                         {"choose_experts", {count, chosen, constant("kNormalised", experts.normalised)}},
                         choose_experts_shape(at.step.rows))}};
  if (at.step.groups_by_expert()) {
    const ExpertTileShape shape{expert_shape(at, Op{})};
    lowered.kernels.push_back(kernel_choice<GroupByExpert>(
        {"group_by_expert",
         {count, chosen, {"kJobRows", shape.job_rows()}, {"kThreads", int64_t{shape.group_threads()}}}},
        shape.group_launch()));
  }
  lowered.emit = emits([](const LoadedRun& run, const StepPlace& step) {
    const ExpertState& s = step.s.experts;
    const View<int32_t> n_live = step.s.inputs.n_live;
    step.g.launch("route", run.kernel<ChooseExperts>(),
                  {.logits = s.logits, .experts = s.chosen, .weights = s.weights, .n_live = n_live});
    if (run.kernels.size() > 1)
      step.g.launch("group", run.kernel<GroupByExpert>(1),
                    {.experts = s.chosen, .n_live = n_live, .pairs = s.pairs, .jobs = s.jobs, .n_jobs = s.n_jobs});
  });
  return lowered;
}

// Tiles leave what each expert gives, which a second kernel adds, here or over the ranks.
LoweringResult experts_in_tiles(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (std::string why = why_not_experts(at, form, true); !why.empty()) return why;
  const Op& product = spec.product;
  const ExpertTileShape shape{expert_shape(at, product)};
  if (spec.end == End::gate_up) return gate_up_in_tiles(at, spec, shape);
  KernelChoice down =
      kernel_choice<ExpertDown>({"tile_expert_down", tile_constants(shape)}, shape.launch_shape(at.device.sm_count));
  if (spec.exchanged) {
    ExchangedSum sum = exchanged_sum(at, spec, form);
    sum.bulk = sends_bulk(at.config, at.step, form);
    sum.chosen = shape.chosen;
    return with_exchange(at, spec, sum, std::move(down), [product](const LoadedRun& run, const ProductPlace& p) {
      return emit_down_in_tiles(run, product, p.step, p.weights);
    });
  }
  return LoweredRun{.operations = spec.operations,
                    .kernels = {std::move(down), kernel_choice<AddExperts>(
                                                     {"add_experts", {{"kChosen", shape.chosen}, residual_scale(at)}},
                                                     add_experts_shape(at.step.rows, product.outputs))},
                    .emit = emits([product](const LoadedRun& run, const StepPlace& step, const StepWeights& weights) {
                      const View<float> given = emit_down_in_tiles(run, product, step, weights);
                      step.g.launch("add_experts", run.kernel<AddExperts>(1),
                                    {.y = given,
                                     .weights = step.s.experts.weights,
                                     .residual = step.s.residual,
                                     .n_live = step.s.inputs.n_live,
                                     .cols = product.outputs,
                                     .stride = row_stride(product.outputs)});
                    })};
}

LoweringResult experts_by_rows(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (std::string why = why_not_experts(at, form, false); !why.empty()) return why;
  const Op& product = spec.product;
  const ExpertRowsShape shape{expert_shape(at, product)};
  if (spec.end == End::gate_up) return gate_up_by_rows(at, spec, shape);
  if (spec.exchanged)
    return with_exchange(at, spec, exchanged_sum(at, spec, form),
                         down_by_rows<ExpertDownSum>(at, shape, "expert_down_sum", {single_row(at)}),
                         [product](const LoadedRun& run, const ProductPlace& p) {
                           auto args = expert_args<ExpertDownSum>(p.step, p.weights, product);
                           args.to = {p.step.s.partial, row_stride(product.outputs)};
                           p.step.g.launch(std::string(to_string(product.part)), run.kernel<ExpertDownSum>(), args,
                                           expert_traffic(p.step, p.weights.matrix(product.part),
                                                          p.step.s.activated.bytes(), p.step.s.partial.bytes()));
                           return p.step.s.partial;
                         });
  return LoweredRun{
      .operations = spec.operations,
      .kernels = {down_by_rows<ExpertDownAdd>(at, shape, "expert_down_add", {single_row(at), residual_scale(at)})},
      .emit = emits([product](const LoadedRun& run, const StepPlace& step, const StepWeights& weights) {
        const DecodeState& s = step.s;
        auto args = expert_args<ExpertDownAdd>(step, weights, product);
        args.to = {.residual = s.residual, .stride = row_stride(product.outputs)};
        step.g.launch(std::string(to_string(product.part)), run.kernel<ExpertDownAdd>(), args,
                      expert_traffic(step, weights.matrix(product.part), s.activated.bytes() + s.residual.bytes(),
                                     s.residual.bytes()));
      })};
}

}  // namespace nodewright
