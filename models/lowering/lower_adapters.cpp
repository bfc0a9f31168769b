// What adapters add to the products of a layer: rows go to few dimensions beside the product, and from there onto what
// it has given.
//
// The residual takes it after the product, but where the product leaves it for the next norm (gained): there before
// it. The activation adds that of gate_up. In a
// part of a network the kernel that sends a rank's sums of out and down adds it (lower_exchange.cpp).
#include "kernels_src/adapters/expand.h"
#include "kernels_src/adapters/shrink.h"
#include "kernels_src/adapters/shrink_shape.h"
#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

const AdapterMatrix& adapter_matrix(const RowAdapters& adapters, Part part) {
  return adapters.slots->layout().of(adapters.layer, part);
}
int64_t ranks_of(const LoweringContext& at, Part part) {
  return AdapterLayout::parts_of(at.config, part) * at.step.adapters.rank;
}

// Each row reads the matrices of one slot.
uint64_t bytes_of_slot(const DecodeState& s, int64_t rows, int64_t stride) {
  return sizeof(WeightElement) * count_of(s.rows * rows * stride);
}

// The node of a part whose sums are of `ranks` dimensions, by either kernel. `read_bytes`: of x.
template <class Args>
void emit_shrink(const Kernel<Args>& kernel, Args args, Part part, int64_t ranks, uint64_t read_bytes,
                 const StepPlace& step, const RowAdapters& adapters) {
  const AdapterMatrix& m = adapter_matrix(adapters, part);
  args.adapter = {.a = adapters.slots->a(m),
                  .scales = adapters.slots->scales(m),
                  .ids = step.s.inputs.adapters,
                  .n_live = step.s.inputs.n_live,
                  .ranks = ranks,
                  .slot_elements = static_cast<int64_t>(adapters.slots->layout().slot_bytes() / sizeof(WeightElement))};
  const View<float> h = step.s.shrunk[place_of(part)];
  args.h = h;
  step.g.launch("shrink_" + std::string(to_string(part)), kernel, args,
                {.traffic = Traffic{bytes_of_slot(step.s, ranks, m.stride) + read_bytes, h.bytes()}});
}

ShrinkShape shrink_shape(const LoweringContext& at, const Op& op) {
  const int64_t cols = matrix_size(at.config, op.part).cols;
  return {at.step.rows, cols, row_stride(cols), ranks_of(at, op.part), op.gain != Part::embedding};
}
std::vector<Constant> shrink_constants(const LoweringContext& at, const ShrinkShape& shape,
                                       std::vector<Constant> more) {
  more.push_back(rank_constant(at));
  more.push_back({"kBias", 0});
  return constants_of(shape.constants(), more);
}

// What takes the part's sum, where it comes before or after the product, and not in its run.
struct ExpandTarget {
  View<float> y;
  int64_t stride = 0;
};
ExpandTarget target_of(const StepPlace& step, Part part, ResidualForm form) {
  if (part == Part::qkv) return {step.s.qkv, step.config.qkv_width()};
  return {form == ResidualForm::deferred ? step.s.projected : step.s.residual, row_stride(step.config.hidden)};
}

// qkv's is a node of its own after the product, whichever kernel reads it.
bool is_added_in_run(const LoweringContext& at, Part part) { return part != Part::qkv && at.config.shard.is_part(); }
bool is_added_before(const LoweringContext& at, ResidualForm form, Part part) {
  return part != Part::qkv && form == ResidualForm::gained && !is_added_in_run(at, part);
}

// The scale of sums that are added to the residual.
float expand_scale(const LoweringContext& at, Part part) { return part == Part::qkv ? 1 : at.config.residual_scale; }

}  // namespace

void add_expand_kernel(LoweredRun& lowered, const LoweringContext& at, const Op& product, float scale) {
  if (!at.step.adapters.any()) return;
  const int64_t outputs = matrix_size(at.config, product.part).outputs;
  lowered.kernels.push_back(kernel_choice<Expand>({"expand", {rank_constant(at), factor_constant("kScale", scale)}},
                                                  expand_shape(static_cast<unsigned>(at.step.rows), outputs)));
}

void emit_expand(const LoadedRun& run, const StepPlace& step, const RowAdapters& adapters, Part part, View<float> y,
                 int64_t y_stride, size_t kernel) {
  const AdapterMatrix& m = adapter_matrix(adapters, part);
  step.g.launch("expand_" + std::string(to_string(part)), run.kernel<Expand>(kernel),
                {.y = y.subview(0, count_of((step.s.rows - 1) * y_stride + m.outputs)),
                 .adapter = adapter_in(adapters, step.s, part),
                 .n_live = step.s.inputs.n_live,
                 .outputs = m.outputs,
                 .y_stride = y_stride,
                 .parts = m.parts,
                 .second = m.first[0],
                 .third = m.first[1]},
                {.traffic = Traffic{
                     bytes_of_slot(step.s, m.outputs, adapters.slots->layout().limits().rank) + y.bytes(), y.bytes()}});
}

// h = s A norm(x).
LoweringResult lower_norm_shrink(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::shrink}) || ops[0].gain == Part::embedding) return {};
  const Op& op = ops[0];
  const ShrinkShape shape = shrink_shape(at, op);
  const auto kernel = [&](bool post_norm) {
    return kernel_choice<NormShrink>(
        {"norm_shrink", shrink_constants(at, shape, {constant("kNorm", op.norm), constant("kPostNorm", post_norm)})},
        shape.launch_shape());
  };
  LoweredRun lowered{.operations = 1,
                     .emit = emits([op, ranks = ranks_of(at, op.part)](
                                       const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                       const Residual& residual, const RowAdapters& adapters) {
                       const Residual from =
                           not_gained(residual, step);  // pre-scaled rows come with the residual itself
                       const bool deferred = std::holds_alternative<DeferredResidual>(from);
                       NormShrink args{};
                       args.from = residual_in(from, weights.norm(op.gain), step.config.eps);
                       emit_shrink(run.kernel<NormShrink>(deferred ? run.kernels.size() - 1 : 0), args, op.part, ranks,
                                   step.s.residual.bytes(), step, adapters);
                     })};
  // One kernel for the first layer, where nothing has been added yet, and one for the others.
  if (form != ResidualForm::deferred || op.part == Part::qkv) lowered.kernels.push_back(kernel(false));
  if (form == ResidualForm::deferred) lowered.kernels.push_back(kernel(true));
  return lowered;
}

// h = s A x.
LoweringResult lower_shrink(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::shrink})) return {};
  const Op& op = ops[0];
  const ShrinkShape shape = shrink_shape(at, op);
  LoweredRun lowered{
      .operations = 1,
      .kernels = {kernel_choice<Shrink>({"shrink", shrink_constants(at, shape, {})}, shape.launch_shape())}};
  const bool before = is_added_before(at, form, op.part);
  if (before) add_expand_kernel(lowered, at, op, expand_scale(at, op.part));
  lowered.emit = emits([op, form, before, ranks = ranks_of(at, op.part)](const LoadedRun& run, const StepPlace& step,
                                                                         const RowAdapters& adapters) {
    const View<bf16> x = step.input_of(op.part);
    Shrink args{};
    args.from = {x, adapter_matrix(adapters, op.part).stride};
    emit_shrink(run.kernel<Shrink>(), args, op.part, ranks, x.bytes(), step, adapters);
    if (!before) return;
    const ExpandTarget target = target_of(step, op.part, form);
    emit_expand(run, step, adapters, op.part, target.y, target.stride, 1);
  });
  return lowered;
}

// y += B h.
LoweringResult lower_expand(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::expand})) return {};
  const Op& op = ops[0];
  LoweredRun lowered{.operations = 1, .emit = [](const LoadedRun&, EmitContext&) {}};
  if (is_added_before(at, form, op.part) || is_added_in_run(at, op.part)) return lowered;
  add_expand_kernel(lowered, at, op, expand_scale(at, op.part));
  lowered.emit =
      emits([part = op.part, form](const LoadedRun& run, const StepPlace& step, const RowAdapters& adapters) {
        const ExpandTarget target = target_of(step, part, form);
        emit_expand(run, step, adapters, part, target.y, target.stride, 0);
      });
  return lowered;
}

}  // namespace nodewright
