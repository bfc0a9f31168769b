// Products with kernels of the step's own: in tiles on tensor cores, or row by row.
#include <algorithm>
#include <string_view>
#include <variant>

#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/product/rows/matvec_shape.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_add.h"
#include "kernels_src/projection/project_exchange.h"
#include "kernels_src/projection/project_exchange_shape.h"
#include "kernels_src/projection/project_gate_up.h"
#include "models/lowering/product.h"

namespace nodewright {
namespace {

// Where x comes from: as it is, normed by the kernel, or by the one before.
enum class Norms : uint8_t { none, own, post_and_own, gained, before };
struct InputNorm {
  Norms norms = Norms::none;
  Norm kind = Norm::rms;  // of all that there are
};
// Those of the kernels that a run asks for: of the first layer, where nothing has been added to the residual yet, and
// of the others.
std::vector<InputNorm> input_norms(const ProductSpec& spec, ResidualForm form) {
  if (!spec.norm) return {{}};
  const Norm kind = spec.norm->norm;
  if (form == ResidualForm::gained) return {{Norms::gained, kind}};
  if (form == ResidualForm::plain) return {{Norms::own, kind}};
  if (spec.product.part == Part::qkv) return {{Norms::own, kind}, {Norms::post_and_own, kind}};
  return {{Norms::post_and_own, kind}};
}

// Where results go that do not join the residual.
RowsOut<float> rows_out(const ProductSpec& spec, const ProductPlace& p, const RowsOut<float>&) {
  const DecodeState& s = p.step.s;
  return {spec.product.part == Part::router ? s.experts.logits : s.qkv, spec.product.outputs};
}
RowsOut<bf16> rows_out(const ProductSpec&, const ProductPlace& p, const RowsOut<bf16>&) {
  return activated_out(p.step, p.weights);
}

template <class Args>
void launch(const LoadedRun& run, const ProductSpec& spec, ResidualForm form, const ProductPlace& p) {
  Args args = product_args<Args>(p, spec.product);
  auto& plain = without_adapter(args);
  if constexpr (std::is_same_v<decltype(plain.from), ResidualIn>) {
    const auto kernel = run.kernel<Args>(kernel_for(run, p.residual));
    const View<float> next = other_residual(p.residual, p.step.s);
    plain.from = residual_in(p.residual, p.weights.norm(spec.norm->part), p.step.config.eps, next);
    plain.to = rows_out(spec, p, plain.to);
    p.step.g.launch(node_name(spec.product), kernel, args);
    settle_residual(p.residual, next);
  } else {
    const auto kernel = run.kernel<Args>();
    if constexpr (requires { rows_out(spec, p, plain.to); })
      if (spec.end != End::add) plain.to = rows_out(spec, p, plain.to);
    if constexpr (!std::is_same_v<decltype(plain.to), RowsOut<bf16>>)
      if (spec.end == End::add)
        fill_sum(plain.to, sum_to(spec, form), spec.parts > 0 ? spec.parts : kernel.shape.grid[0], p);
    p.step.g.launch(node_name(spec.product), kernel, args);
  }
}

// A rank's part of a sum, for the exchange after it.
View<float> launch_part(const LoadedRun& run, const ProductSpec& spec, const ProductPlace& p) {
  auto args = product_args<Project>(p, spec.product);
  args.to = {p.step.s.partial, row_stride(p.step.config.hidden)};
  p.step.g.launch(node_name(spec.product), run.kernel<Project>(), args);
  return p.step.s.partial;
}

void launch_logits(const Kernel<NormProject>& kernel, const ResidualIn& from, bool leaves_best, bool one_row,
                   const StepPlace& step, const StepWeights& weights, HeadRows& head, const ProductSpec& product) {
  const DecodeState& s = step.s;
  // Parts of a row whose largest logit is left.
  const uint64_t parts = !leaves_best ? 0 : product.parts > 0 ? product.parts : kernel.shape.grid[0];
  head.best = s.best.subview(0, count_of(s.sampled_rows) * parts);
  head.logits = s.logits_part;
  auto args = product_args<NormProject>(step, weights, product.product);
  args.from = from;
  args.to = {s.logits_part, s.logits_part_stride};
  args.best = head.best;
  // May leave out what no choice reads; where not all ranks have as many, the choice reads all.
  if (leaves_best && !one_row && step.config.vocab % step.config.shard.ranks == 0) {
    args.temperature = s.inputs.temperature;
    args.keeps_all = s.inputs.keeps_logits;
  }
  step.g.launch("logits", kernel, args);
}

// A kernel before its shape is known. `launch`: its node.
struct Wanted {
  const char* name;
  uint64_t args_bytes;
  std::vector<Constant> constants;
  void (*launch)(const LoadedRun& run, const ProductSpec& spec, ResidualForm form, const ProductPlace& p);
};
template <class Args>
Wanted wanted(const char* name, std::vector<Constant> constants = {}) {
  return {name, sizeof(Args), std::move(constants), launch<Args>};
}

Wanted wanted_kernel(const LoweringContext& at, const ProductSpec& spec, ResidualForm form, bool tiles) {
  if (spec.end == End::logits) return wanted<NormProject>("norm_project", logit_constants(at.config));
  if (spec.end == End::store && !spec.norm) return wanted<Project>("project");
  if (spec.end == End::store) return wanted<NormProject>("norm_project", unscaled_constants());
  std::vector<Constant> constants;
  if (spec.end == End::gate_up) {
    constants = {constant("kGated", spec.gated), constant("kActivation", at.config.activation)};
    if (!spec.adapted)
      return spec.norm ? wanted<NormGateUp>("norm_gate_up", constants)
                       : wanted<ProjectGateUp>("project_gate_up", constants);
    constants.push_back(rank_constant(at));
    return spec.norm ? wanted<AdaptedGateUp>("adapted_gate_up", constants)
                     : wanted<AdaptedProjectGateUp>("adapted_project_gate_up", constants);
  }
  if (spec.exchanged ? at.step.collectives : spec.post_norm.has_value()) return wanted<Project>("project");
  constants = {scale_constant(at, sum_to(spec, form))};
  if (spec.exchanged) {
    constants.insert(constants.end(), {ranks_constant(at), constant("kAdds", !spec.post_norm)});
    if (spec.adapted) constants.push_back(rank_constant(at));
  }
  if (tiles) constants.push_back(constant("kLeavesGained", form == ResidualForm::gained));
  if (!spec.exchanged) return wanted<ProjectAdd>("project_add", constants);
  return spec.adapted ? wanted<AdaptedProjectExchange>("adapted_project_exchange", constants)
                      : wanted<ProjectExchange>("project_exchange", constants);
}

// What all of these kernels are compiled for.
std::vector<Constant> with_input(const ProductSpec& spec, InputNorm norm, std::vector<Constant> constants) {
  constants.insert(constants.begin(), constant("kBias", spec.product.bias));
  if (spec.product.weights.is_quantized())
    constants = constants_of(spec.product.weights.constants(), std::move(constants));
  if (norm.norms == Norms::none) return constants;
  constants.push_back(constant("kNorm", norm.kind));
  constants.push_back(constant("kPostNorm", norm.norms == Norms::post_and_own));
  return constants;
}

static_assert(TileShape::kMostHeldRows == kHeldToRows);

using Choice = std::variant<KernelChoice, std::string>;
// A kernel of tiles, `tile_<name>`, or why there is none. `keeps_sums`: those of a block stay in its shared memory.
// `holds`: rows of x stay in registers.
Choice tiled(const LoweringContext& at, const ProductSpec& spec, InputNorm norm, const Wanted& kernel, bool keeps_sums,
             bool holds) {
  const bool always = at.step.always_holds(at.config);
  const Op& product = spec.product;
  const bool normed = norm.norms != Norms::none, gained = norm.norms == Norms::gained || norm.norms == Norms::before;
  std::vector<Constant> constants = with_input(spec, norm, kernel.constants);
  if (normed) constants.push_back(constant("kGained", gained));
  TileShape asked{spec.rows,
                  product.cols,
                  row_stride(product.cols),
                  product.outputs,
                  spec.unit(),
                  normed,
                  norm.norms == Norms::post_and_own,
                  gained,
                  holds,
                  normed && norm.kind == Norm::layer,
                  tuning_of(at.step.tuning, product.part).tile,
                  keeps_sums};
  // Invariant numerics deal the columns alike whether a neighbour has an adapter or not.
  const bool adapted =
      (always ? at.step.beside_adapters : spec.adapted) && (spec.end == End::gate_up || spec.exchanged);
  asked.weights = product.weights;
  asked.meets = !always && asked.groups() > 1;
  // What scales rows of x takes registers, too.
  const bool scaled = product.weights.is_quantized() && (always || asked.groups() > 1);
  asked.ends_in_registers = product.bias || adapted || scaled;
  if (spec.end == End::logits && !always) asked.tuning.splits = 1;  // a block has the best of its logits
  if (asked.held && !asked.holds()) return "registers do not hold its rows";
  if (spec.end == End::logits && asked.splits() > 1 && !always) return "registers of one block do not hold its rows";
  if (asked.splits() > 1) asked.clusters = at.clusters_of(asked.splits());
  if (asked.splits() > 1 && asked.clusters == 0) return "no cluster of its blocks fits the device";
  if (always) {  // for all rows or for none: several groups of rows need the longest ring
    TileShape most = asked;
    most.rows = 2 * TileShape::kMostHeldRows;
    const auto fits = [&] { return most.ring(at.device.sm_count, at.device.shared_optin_bytes) > 0; };
    // A row's best logit of a range is one block's.
    asked.meets = most.meets = asked.splits() > 1 && (spec.end == End::logits || !fits());
    if (!fits()) return "a block's shared memory does not hold 32 rows";
  }
  if (asked.held && !always && spec.end == End::gate_up && asked.splits() > 1 && spec.rows <= kTilesToRows &&
      !product.weights.is_quantized())
    return "with few rows, sums of gate and up that several blocks hold take longer";
  const TileShape shape = asked.fitting(at.device.sm_count, at.device.shared_optin_bytes);
  if (shape.meets && !always && spec.end == End::gate_up && norm.norms == Norms::none &&
      !product.weights.is_quantized())
    return "beside attention a library's product takes less time than sums that meet tile by tile";
  const int64_t ring = shape.ring(at.device.sm_count, at.device.shared_optin_bytes);
  if (ring == 0) return "a block's shared memory does not hold it";
  return KernelChoice{
      {std::string("tile_") + kernel.name, constants_of(shape.constants(ring, at.device.sm_count), constants)},
      shape.launch_shape(at.device.sm_count, ring),
      kernel.args_bytes};
}
// The parts of a row's squares, or of its best logit, that a kernel of tiles leaves (parts_of_row()).
uint64_t parts_of(const KernelChoice& tiles) {
  const auto of = [&](std::string_view name) {
    return count_of(std::get<int64_t>(std::ranges::find(tiles.request.constants, name, &Constant::name)->value.held));
  };
  if (of("kHeld") != 2 && of("kRanges") == 0) return tiles.shape.grid[0];
  return of("kRanges") == 0 ? tiles.shape.grid[0] / of("kSplits")
                            : of("kRanges") * (of("kHeld") == 2 ? 1 : of("kSplits"));
}
// The same, held or not as suits the rows (docs/products.md).
Choice held_or_tiled(const LoweringContext& at, const ProductSpec& spec, InputNorm norm, const Wanted& kernel,
                     ResidualForm form, bool keeps_sums = false) {
  const bool always = at.step.always_holds(at.config),
             many = spec.rows > kTilesToRows && (holds_rows(at) || norm.norms == Norms::before);
  if (always && !at.device.has_clusters()) return "blocks that share held rows make no clusters";
  if (always || many) return tiled(at, spec, norm, kernel, keeps_sums, true);
  if (!at.step.takes_tiles(spec.rows))
    return "not a step of tiles: " + std::to_string(spec.rows) + " rows of " + std::to_string(kTilesFromRows) + " to " +
           std::to_string(kTilesToRows);
  const bool may_hold = form == ResidualForm::gained && at.device.has_clusters() && !at.config.shard.is_part();
  const int64_t least = spec.product.weights.is_quantized() ? kTilesFromRows
                        : spec.end == End::gate_up          ? kGateUpHeldFromRows
                                                            : kHeldFromRows;
  if (may_hold && spec.rows >= least) {
    Choice held = tiled(at, spec, norm, kernel, keeps_sums, true);
    if (std::holds_alternative<KernelChoice>(held)) return held;
  }
  return tiled(at, spec, norm, kernel, keeps_sums, false);
}
// A kernel of dot products, `<name>`. `at_once`: all of its blocks run at once, if that can be.
KernelChoice matvec(const LoweringContext& at, const ProductSpec& spec, InputNorm norm, const Wanted& kernel,
                    bool at_once) {
  const Op& product = spec.product;
  MatvecShape shape{spec.rows,
                    product.cols,
                    row_stride(product.cols),
                    product.outputs,
                    spec.unit(),
                    norm.norms != Norms::none,
                    tuning_of(at.step.tuning, product.part).matvec};
  shape.weights = product.weights;
  if (at_once) shape = project_exchange_shape(shape);
  if (at.step.numerics == Numerics::invariant && spec.rows == 1) {
    MatvecShape several = shape;  // whose rows leave a thread fewer registers
    several.rows = 2;
    shape.tuning.threads = several.threads();
  }
  shape.fit_segment(at.device.sm_count);
  return {{kernel.name, constants_of(shape.constants(), with_input(spec, norm, kernel.constants))},
          shape.launch_shape(at.device.sm_count),
          kernel.args_bytes};
}

// Where a kernel of its own norms the rows, tiles of up to this size take less time than a library's product, and so do
// those that spare a node: of gate and up, of a bias (bench/results/2026-11-28-h200-normed-rows.txt), or of weights
// that the library gets dequantized.
constexpr int64_t kMostHeldBytes = 4 << 20;
int64_t bytes_of(const Op& product) { return product.outputs * row_stride(product.cols) * 2; }

// Why no kernel of the step's own multiplies, or nothing.
std::string why_not(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  const bool deferred = form == ResidualForm::deferred;
  if (spec.end == End::logits) return at.step.has_head_product() ? "the step's head is a library's product" : "";
  if (spec.post_norm && !spec.exchanged && !deferred) return "its norm is left to the next kernel, and none takes it";
  if (is_library_used(at, form)) return "the step's products are a library's";
  if (at.step.with_products() && form != ResidualForm::gained) {
    if (spec.norm) return "a kernel before norms its rows";
    const bool spares_node = spec.end == End::gate_up || spec.product.bias || spec.product.weights.is_quantized();
    if (!spares_node && bytes_of(spec.product) > kMostHeldBytes) return "a library's product is as fast";
    if (spec.product.part == Part::gate_up && spec.end == End::store) return "its activation is not its end";
  }
  if (spec.exchanged && spec.post_norm.has_value() != deferred) return "its norm is left to the next kernel";
  return {};
}
std::string why_not_by_rows(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (std::string why = why_not(at, spec, form); !why.empty() || spec.end == End::logits) return why;
  if (at.step.with_products()) return "the step's products are a library's or in tiles";
  if (form == ResidualForm::gained && spec.exchanged) return "rows do not leave it times the next gain";
  if (form == ResidualForm::gained)
    return spec.norm ? "its rows come times the next gain, which tiles alone read"
                     : "rows do not leave it times the next gain, which tiles alone do";
  return spec.exchanged && at.step.takes_tiles(spec.rows) ? "the step's products are in tiles" : "";
}

LoweredRun in_two_nodes(const LoweringContext& at, const ProductSpec& spec, ResidualForm form, KernelChoice kernel,
                        const TileOrder& order = {}) {
  return with_exchange(
      at, spec, exchanged_sum(at, spec, form), std::move(kernel),
      [spec](const LoadedRun& run, const ProductPlace& p) { return launch_part(run, spec, p); }, order);
}

// `form`: as the kernels read the residual and leave it.
LoweringResult multiplied(const LoweringContext& at, const ProductSpec& spec, ResidualForm form, bool tiles) {
  const Wanted kernel = wanted_kernel(at, spec, form, tiles);
  LoweredRun lowered{.operations = spec.operations};
  for (const InputNorm norm : input_norms(spec, form)) {
    Choice choice = tiles ? held_or_tiled(at, spec, norm, kernel, form, spec.exchanged)
                          : matvec(at, spec, norm, kernel, spec.exchanged);
    if (auto* why = std::get_if<std::string>(&choice)) return *why;
    lowered.kernels.push_back(std::get<KernelChoice>(std::move(choice)));
  }
  KernelChoice& first = lowered.kernels.front();
  if (spec.exchanged && (tiles ? first.shape.blocks() > count_of(at.device.sm_count) : first.shape.grid[1] > 1))
    return "its blocks do not run at once";
  if (spec.exchanged && at.step.collectives)
    return in_two_nodes(at, spec, form, first, tiles ? tile_order(first) : TileOrder{});
  ProductSpec with_parts = spec;
  if (tiles) with_parts.parts = parts_of(first);
  if (spec.end != End::logits) {
    lowered.emit = emits_product([spec = with_parts, form, launch = kernel.launch](
                                     const LoadedRun& run, const ProductPlace& p) { launch(run, spec, form, p); });
    return lowered;
  }
  const bool one_row = at.step.is_one_row() && !tiles, gained = form == ResidualForm::gained;
  if (one_row) first.shape = with_best(first.shape);
  lowered.emit = emits([product = with_parts, gained, leaves_best = tiles || one_row, one_row](
                           const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                           const Residual& residual, HeadRows& head) {
    const ResidualIn from =
        residual_in(gained ? residual : not_gained(residual, step), weights.model.final_norm(), step.config.eps);
    launch_logits(run.kernel<NormProject>(), from, leaves_best, one_row, step, weights, head, product);
  });
  return lowered;
}

// The head reads the residual itself, whatever is left beside it.
ResidualForm as_read(const ProductSpec& spec, ResidualForm form) {
  return spec.end == End::logits && form == ResidualForm::gained ? ResidualForm::plain : form;
}

}  // namespace

LoweringResult in_tiles(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (std::string why = why_not(at, spec, form); !why.empty()) return why;
  if (at.step.always_holds(at.config) && as_read(spec, form) != ResidualForm::gained)
    return "tiles of invariant numerics read rows times the next gain";
  return multiplied(at, spec, as_read(spec, form), true);
}

LoweringResult by_rows(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (std::string why = why_not_by_rows(at, spec, form); !why.empty()) return why;
  return multiplied(at, spec, as_read(spec, form), false);
}

LoweringResult in_gained_tiles(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (form != ResidualForm::gained) return "the residual does not come times the next gain";
  if ((at.step.sampled_rows + 7) / 8 != (at.step.rows + 7) / 8) return "its squares are of more rows";
  if (at.step.rows > kHeldToRows && at.step.with_products()) return "a library reads the weights once";
  if (at.step.tuning.head.product.names_algorithm()) return "a library's product was measured to be faster";
  return multiplied(at, spec, form, true);
}

LoweringResult in_normed_tiles(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (!at.step.may_hold_head()) return "not a step of products whose head may be tiles";
  if (!at.device.has_clusters()) return "its blocks make no clusters";
  Choice choice = held_or_tiled(at, spec, {Norms::before, Norm::none},
                                wanted<NormProject>("norm_project", logit_constants(at.config)), form);
  if (auto* why = std::get_if<std::string>(&choice)) return *why;
  auto& tiles = std::get<KernelChoice>(choice);
  ProductSpec with_parts = spec;
  with_parts.parts = parts_of(tiles);
  return LoweredRun{.operations = spec.operations,
                    .kernels = {norm_rows_choice(at, *spec.norm, form == ResidualForm::deferred), std::move(tiles)},
                    .emit = emits([norm = *spec.norm, product = with_parts](const LoadedRun& run, const StepPlace& step,
                                                                            const StepWeights& weights,
                                                                            Residual& residual, HeadRows& head) {
                      residual = not_gained(residual, step);
                      emit_norm_rows(run.kernel<NormRows>(), step, weights, residual, norm);
                      // Without squares a row's scale is 1 / sqrt(eps).
                      launch_logits(run.kernel<NormProject>(1), {.gained = step.s.normed, .eps = 1}, true, false, step,
                                    weights, head, product);
                    })};
}

LoweringResult before_exchange(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (std::string why = why_not(at, spec, form); !why.empty()) return why;
  const Wanted kernel = wanted<Project>("project");
  Choice choice = held_or_tiled(at, spec, {}, kernel, form);
  if (std::holds_alternative<std::string>(choice)) {
    if (form == ResidualForm::gained) return std::get<std::string>(choice);
    choice = matvec(at, spec, {}, kernel, false);
  }
  return in_two_nodes(at, spec, form, std::get<KernelChoice>(std::move(choice)));
}

}  // namespace nodewright
