// Products with the step's own kernels, with the norm before them and the sum after them: in tiles on tensor cores, or
// row by row.
#include <algorithm>

#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/product/rows/matvec_shape.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_add.h"
#include "models/lowering/lowering_rows.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

// In front of the constants of a kernel that norms.
void add_norm(std::vector<Constant>& constants, InputNorm norm) {
  if (norm.norms == Norms::none) return;
  constants.push_back(constant("kNorm", norm.kind));
  constants.push_back(constant("kPostNorm", norm.norms == Norms::post_and_own));
}

Norms norms_of(Travel travel) {
  switch (travel) {
    case Travel::gained:
      return Norms::gained;
    case Travel::deferred:
      return Norms::post_and_own;
    case Travel::plain:
      break;
  }
  return Norms::own;
}

constexpr const char* kLibraryIsUsed = "the step's products are a library's";
constexpr const char* kOnlyInTiles = "its rows come times the next gain, which tiles alone read";

// The kernels that a run asks for, by the form of its residual: of the first layer, where nothing has been added yet,
// and of the others.
template <class Choose>
Attempt by_residual(const Op& norm, const Op& product, Travel travel, const Choose& choose, Lowered lowered) {
  if (travel == Travel::deferred && product.part == Part::qkv) {
    Attempt own = choose(InputNorm{Norms::own, norm.norm});
    if (std::holds_alternative<std::string>(own)) return own;
    lowered.kernels = std::get<Lowered>(own).kernels;
  }
  Attempt others = choose(InputNorm{norms_of(travel), norm.norm});
  if (std::holds_alternative<std::string>(others)) return others;
  lowered.kernels.push_back(std::get<Lowered>(others).kernels.at(0));
  return lowered;
}

Attempt one_kernel(std::variant<KernelChoice, std::string> choice) {
  if (auto* why = std::get_if<std::string>(&choice)) return *why;
  return Lowered{.kernels = {std::get<KernelChoice>(std::move(choice))}};
}

// The kernel for the residual as it is: the last one, but the first where nothing has been added.
size_t kernel_for(const LoadedRun& run, const Residual& residual) {
  return std::holds_alternative<DeferredResidual>(residual) ? run.kernels.size() - 1 : 0;
}

// `y`: where the product goes, rows `y_stride` apart.
template <class Args, class Element>
void emit_normed(const LoadedRun& run, Emission& e, const Op& norm, const Op& product, View<Element> y,
                 int64_t y_stride) {
  const WeightMatrix& w = e.matrix(product.part);
  const View<float> next = e.other_residual();
  Args args{.from = residual_in(e.residual, e.norm(norm.part), next),
            .weight = w.data,
            .bias = w.bias,
            .y = y,
            .n_live = e.s.inputs.n_live,
            .outputs = w.rows,
            .y_stride = y_stride,
            .eps = e.config.eps};
  if constexpr (std::is_same_v<Args, AdaptedGateUp>) args.adapter = adapter_in(e, product.part);
  e.g.launch(node_name(product), run.kernel<Args>(kernel_for(run, e.residual)), args);
  e.settle_residual(next);
}

void emit_norm_project(const LoadedRun& run, Emission& e, const Op& norm, const Op& product) {
  emit_normed<NormProject>(run, e, norm, product, product.part == Part::router ? e.s.experts.logits : e.s.qkv,
                           product.outputs);
}

void emit_norm_gate_up(const LoadedRun& run, Emission& e, const Op& norm, const Op& product) {
  const int64_t stride = e.matrix(Part::down).stride;
  if (e.adapters != nullptr) return emit_normed<AdaptedGateUp>(run, e, norm, product, e.s.activated, stride);
  emit_normed<NormGateUp>(run, e, norm, product, e.s.activated, stride);
}

void emit_project_add(const LoadedRun& run, Emission& e, const Op& product, Travel travel) {
  const WeightMatrix& w = e.matrix(product.part);
  const auto kernel = run.kernel<ProjectAdd>();
  ProjectAdd args{.x = e.input_of(product.part),
                  .weight = w.data,
                  .bias = w.bias,
                  .residual = e.s.residual,
                  .n_live = e.s.inputs.n_live,
                  .outputs = w.rows,
                  .x_stride = w.stride,
                  .residual_stride = row_stride(e.config.hidden)};
  if (travel == Travel::gained) {
    const GainedResidual gained{e.s.gained, e.squares(kernel.shape.grid[0])};
    args.next = {e.gain_behind(product.part), gained.gained, gained.squares};
    e.residual = gained;
  } else {
    e.residual = PlainResidual{e.s.residual};
  }
  e.g.launch(node_name(product), kernel, args);
}

void emit_project(const LoadedRun& run, Emission& e, const Op& product, const Op& post_norm) {
  launch_project(run, e, product, e.s.projected);
  e.residual = DeferredResidual{std::get<PlainResidual>(e.residual).x, e.s.projected, e.post_gain(post_norm.part)};
}

}  // namespace

void launch_project(const LoadedRun& run, Emission& e, const Op& product, View<float> y) {
  const WeightMatrix& w = e.matrix(product.part);
  e.g.launch(node_name(product), run.kernel<Project>(),
             {.x = e.input_of(product.part),
              .weight = w.data,
              .bias = w.bias,
              .y = y,
              .n_live = e.s.inputs.n_live,
              .outputs = w.rows,
              .x_stride = w.stride,
              .y_stride = row_stride(e.config.hidden)});
}

bool holds_rows(const Situation& at) {
  return at.step.may_hold() && at.step.may_leave_gained(at.config) && at.device.has_clusters();
}

bool is_library_used(const Situation& at, Travel travel) {
  return at.step.with_products() && !(travel == Travel::gained && holds_rows(at));
}

std::variant<KernelChoice, std::string> tiled(const Situation& at, const char* name, const Op& product, int64_t unit,
                                              InputNorm norm, int64_t rows, std::vector<Constant> constants,
                                              uint64_t args_bytes, bool keeps_sums) {
  const bool holds = holds_rows(at) && rows > kTilesToRows;
  if (!at.step.takes_tiles(rows) && !holds)
    return "not a step of tiles: " + std::to_string(rows) + " rows of " + std::to_string(kTilesFromRows) + " to " +
           std::to_string(kTilesToRows);
  const bool normed = norm.norms != Norms::none, gained = norm.norms == Norms::gained;
  constants.insert(constants.begin(), constant("kBias", product.bias));
  add_norm(constants, norm);
  if (normed) constants.push_back(constant("kGained", gained));
  const TileShape wanted{rows,
                         product.cols,
                         row_stride(product.cols),
                         product.outputs,
                         unit,
                         normed,
                         norm.norms == Norms::post_and_own,
                         gained,
                         holds,
                         normed && norm.kind == Norm::layer,
                         tuning_of(at.step.tuning, product.part).tile,
                         keeps_sums};
  if (wanted.held && !wanted.holds()) return "registers do not hold its rows";
  const TileShape shape = wanted.fitting(at.device.sm_count, at.device.shared_optin_bytes);
  const int64_t ring = shape.ring(at.device.sm_count, at.device.shared_optin_bytes);
  if (ring == 0) return "a block's shared memory does not hold it";
  return KernelChoice{{std::string("tile_") + name, constants_of(shape.constants(ring), constants)},
                      shape.launch_shape(at.device.sm_count, ring),
                      args_bytes};
}

KernelChoice matvec(const Situation& at, const char* name, const Op& product, int64_t unit, InputNorm norm,
                    int64_t rows, std::vector<Constant> constants, uint64_t args_bytes) {
  constants.insert(constants.begin(), constant("kBias", product.bias));
  add_norm(constants, norm);
  MatvecShape shape{rows,
                    product.cols,
                    row_stride(product.cols),
                    product.outputs,
                    unit,
                    norm.norms != Norms::none,
                    tuning_of(at.step.tuning, product.part).matvec};
  shape.fit_segment(at.device.sm_count);
  return {{name, constants_of(shape.constants(), constants)}, shape.launch_shape(at.device.sm_count), args_bytes};
}

// f(Wgate norm(x)) * (Wup norm(x)), or f(Wup norm(x) + b).
static Attempt norm_gate_up(const Situation& at, std::span<const Op> ops, Travel travel, bool tiles) {
  if (!begins(ops, {OpKind::norm, OpKind::product, OpKind::activate})) return {};
  const Op &norm = ops[0], &product = ops[1], &activate = ops[2];
  if (is_library_used(at, travel)) return kLibraryIsUsed;
  std::vector<Constant> constants = {constant("kGated", activate.gated), constant("kActivation", at.config.activation)};
  const bool adapted = at.step.adapters.any();
  if (adapted) constants.push_back(rank_constant(at));
  const char* const name = adapted ? "adapted_gate_up" : "norm_gate_up";
  const uint64_t args_bytes = adapted ? sizeof(AdaptedGateUp) : sizeof(NormGateUp);
  if (!tiles && travel == Travel::gained) return kOnlyInTiles;
  const int64_t unit = activate.gated ? 2 : 1;  // a gate row and its up row
  const auto choose = [&](InputNorm input) -> Attempt {
    if (tiles) return one_kernel(tiled(at, name, product, unit, input, at.step.rows, constants, args_bytes));
    return one_kernel(matvec(at, name, product, unit, input, at.step.rows, constants, args_bytes));
  };
  return by_residual(norm, product, travel, choose,
                     {.operations = 3, .emit = [norm, product](const LoadedRun& run, Emission& e) {
                        emit_norm_gate_up(run, e, norm, product);
                      }});
}
Attempt lower_tile_norm_gate_up(const Situation& at, std::span<const Op> ops, Travel travel) {
  return norm_gate_up(at, ops, travel, true);
}
Attempt lower_norm_gate_up(const Situation& at, std::span<const Op> ops, Travel travel) {
  return norm_gate_up(at, ops, travel, false);
}

// W norm(x) + b.
static Attempt norm_project(const Situation& at, std::span<const Op> ops, Travel travel, bool tiles) {
  if (!begins(ops, {OpKind::norm, OpKind::product}) || ops[1].part == Part::head) return {};
  const Op &norm = ops[0], &product = ops[1];
  if (is_library_used(at, travel)) return kLibraryIsUsed;
  if (!tiles && travel == Travel::gained) return kOnlyInTiles;
  const auto choose = [&](InputNorm input) -> Attempt {
    if (tiles)
      return one_kernel(
          tiled(at, "norm_project", product, 1, input, at.step.rows, unscaled_constants(), sizeof(NormProject)));
    return one_kernel(
        matvec(at, "norm_project", product, 1, input, at.step.rows, unscaled_constants(), sizeof(NormProject)));
  };
  return by_residual(norm, product, travel, choose,
                     {.operations = 2, .emit = [norm, product](const LoadedRun& run, Emission& e) {
                        emit_norm_project(run, e, norm, product);
                      }});
}
Attempt lower_tile_norm_project(const Situation& at, std::span<const Op> ops, Travel travel) {
  return norm_project(at, ops, travel, true);
}
Attempt lower_norm_project(const Situation& at, std::span<const Op> ops, Travel travel) {
  return norm_project(at, ops, travel, false);
}

// x += W y + b.
static Attempt project_add(const Situation& at, std::span<const Op> ops, Travel travel, bool tiles) {
  if (!begins(ops, {OpKind::product, OpKind::add})) return {};
  const Op& product = ops[0];
  if (is_library_used(at, travel)) return kLibraryIsUsed;
  if (!tiles && travel == Travel::gained) return "rows do not leave it times the next gain, which tiles alone do";
  const Constant scale = factor_constant("kScale", at.config.residual_scale);
  Attempt attempt =
      tiles ? one_kernel(tiled(at, "project_add", product, 1, {}, at.step.rows,
                               {scale, constant("kLeavesGained", travel == Travel::gained)}, sizeof(ProjectAdd)))
            : one_kernel(matvec(at, "project_add", product, 1, {}, at.step.rows, {scale}, sizeof(ProjectAdd)));
  if (auto* lowered = std::get_if<Lowered>(&attempt)) {
    lowered->operations = 2;
    lowered->emit = [product, travel](const LoadedRun& run, Emission& e) { emit_project_add(run, e, product, travel); };
  }
  return attempt;
}
Attempt lower_tile_project_add(const Situation& at, std::span<const Op> ops, Travel travel) {
  return project_add(at, ops, travel, true);
}
Attempt lower_project_add(const Situation& at, std::span<const Op> ops, Travel travel) {
  return project_add(at, ops, travel, false);
}

// x += norm(W y), of which the kernel that reads x next does the norm and the sum.
static Attempt project(const Situation& at, std::span<const Op> ops, Travel travel, bool tiles) {
  if (!begins(ops, {OpKind::product, OpKind::norm, OpKind::add})) return {};
  if (travel != Travel::deferred) return "its norm is left to the next kernel, and none takes it";
  const Op &product = ops[0], &post_norm = ops[1];
  Attempt attempt = tiles ? one_kernel(tiled(at, "project", product, 1, {}, at.step.rows, {}, sizeof(Project)))
                          : one_kernel(matvec(at, "project", product, 1, {}, at.step.rows, {}, sizeof(Project)));
  if (auto* lowered = std::get_if<Lowered>(&attempt)) {
    lowered->operations = 3;
    lowered->emit = [product, post_norm](const LoadedRun& run, Emission& e) {
      emit_project(run, e, product, post_norm);
    };
  }
  return attempt;
}
Attempt lower_tile_project(const Situation& at, std::span<const Op> ops, Travel travel) {
  return project(at, ops, travel, true);
}
Attempt lower_project(const Situation& at, std::span<const Op> ops, Travel travel) {
  return project(at, ops, travel, false);
}

}  // namespace nodewright
