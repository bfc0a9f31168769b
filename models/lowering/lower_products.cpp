// Products of a library (cuBLASLt), and what stands between them: norms, activations, sums.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/elementwise/add_bias.h"
#include "kernels_src/elementwise/gate.h"
#include "kernels_src/projection/dequantize.h"
#include "kernels_src/residual/norm_rows.h"
#include "kernels_src/sampling/cap_logits.h"
#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

constexpr const char* kNoLibrary = "the step's products are kernels of its own";

// Whether the operation is the head's, whose rows are the sampled ones; a layer's rows are all.
bool is_of_head(const Op& op) { return op.part == Part::final_norm || op.part == Part::head; }
bool library_takes(const LoweringContext& at, const Op& op) {
  return is_of_head(op) ? at.step.has_head_product() : at.step.with_products();
}

// Elements of rows `stride` apart: a product writes no padding after its last row.
uint64_t as_written(int64_t rows, int64_t stride, int64_t outputs) { return count_of((rows - 1) * stride + outputs); }

// The library multiplies bf16 alone: other weights become such in a kernel before it, the last of the run's.
void add_dequantize_kernel(LoweredRun& lowered, const Op& product) {
  if (!product.weights.is_quantized()) return;
  const int64_t stride = row_stride(product.cols);
  lowered.kernels.push_back(
      kernel_choice<Dequantize>({"dequantize", constants_of(product.weights.constants(), {{"kStride", stride}})},
                                dequantize_shape(product.weights, product.outputs, stride)));
}
ProductOperand emit_weights(const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                            const std::string& name, const Op& product) {
  const WeightMatrix& matrix = weights.matrix(product.part);
  if (!matrix.layout.is_quantized()) return matrix.data;
  const View<bf16> y = step.s.dequantized.subview(0, count_of(product.outputs * matrix.stride));
  step.g.launch(name + "_weights", run.kernel<Dequantize>(run.kernels.size() - 1),
                {.weight = matrix.data, .y = y, .outputs = product.outputs});
  return y;
}

template <class T, class U>
void emit_product(const LoadedRun& run, const StepPlace& step, const StepWeights& weights, const std::string& name,
                  View<T> x, const Op& product, View<U> y) {
  const auto& plan = run.products.at(0);
  const ProductOperand w = emit_weights(run, step, weights, name, product);
  step.g.product(name, plan,
                 {.a = x,
                  .b = w,
                  .c = {},
                  .bias = {},
                  .y = y,
                  .workspace = plan->workspace_bytes() > 0 ? step.s.workspace : View<uint8_t>{}});
}

ProductChoice product_of_layer(const LoweringContext& at, const Op& product, Element output, int64_t y_stride,
                               float beta = 0, float alpha = 1) {
  return {std::string(to_string(product.part)),
          at.step.rows,
          product.cols,
          product.outputs,
          output,
          y_stride,
          tuning_of(at.step.tuning, product.part).product,
          beta,
          alpha};
}

// In fp32, the library takes no bias in bf16: it comes after the product.
void add_bias_kernel(LoweredRun& lowered, const ProductSpec& spec, float scale = 1) {
  if (!spec.product.bias) return;
  lowered.kernels.push_back(
      kernel_choice<AddBias>({"add_bias", {factor_constant("kScale", scale)}},
                             add_bias_shape(static_cast<unsigned>(spec.rows), spec.product.outputs)));
}
void emit_bias(const LoadedRun& run, const StepPlace& step, const StepWeights& weights, const std::string& name,
               const Op& product, View<float> y, int64_t y_stride) {
  if (!product.bias) return;
  step.g.launch(name, run.kernel<AddBias>(),
                {.y = y,
                 .bias = weights.matrix(product.part).bias,
                 .n_live = is_of_head(product) ? step.s.inputs.n_sampled : step.s.inputs.n_live,
                 .outputs = product.outputs,
                 .y_stride = y_stride});
}

// x += W y + b, in place.
LoweredRun product_add(const LoweringContext& at, const ProductSpec& spec) {
  const int64_t stride = row_stride(at.config.hidden);
  LoweredRun lowered{
      .operations = spec.operations,
      .products = {product_of_layer(at, spec.product, Element::f32, stride, 1, at.config.residual_scale)},
      .emit = emits(
          [product = spec.product, stride](const LoadedRun& run, const StepPlace& step, const StepWeights& weights) {
            const View<float> residual = step.s.residual;
            emit_product(run, step, weights, node_name(product), step.input_of(product.part), product, residual);
            emit_bias(run, step, weights, node_name(product) + "_bias", product, residual, stride);
          })};
  add_bias_kernel(lowered, spec, at.config.residual_scale);
  add_dequantize_kernel(lowered, spec.product);
  return lowered;
}

// x += the sum over the ranks of W y + b, or that sum for the next norm: a product, and the exchange after it.
LoweredRun product_exchange(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  const int64_t stride = row_stride(at.config.hidden);
  ExchangedSum sum = exchanged_sum(at, spec, form);
  sum.bias = spec.product.bias;
  sum.bulk = sends_bulk(at.config, at.step, form);
  LoweredRun lowered{.operations = spec.operations,
                     .kernels = exchange_choices(at, sum),
                     .products = {product_of_layer(at, spec.product, sum.bulk ? Element::bf16 : Element::f32, stride)}};
  lowered.emit = emits_product([spec, stride, sum](const LoadedRun& run, const ProductPlace& p) {
    const DecodeState& s = p.step.s;
    const Op& product = spec.product;
    const uint64_t written = as_written(s.rows, stride, product.outputs);
    const auto emit = [&](auto y) {
      emit_product(run, p.step, p.weights, node_name(product), p.step.input_of(product.part), product, y);
    };
    if (sum.bulk)
      emit(as_bf16(s.partial).subview(0, written));
    else
      emit(s.partial.subview(0, written));
    emit_exchange(run, 0, p, s.partial.subview(0, written), sum);
  });
  add_dequantize_kernel(lowered, spec.product);
  return lowered;
}

// projected = W y + b, whose norm joins the residual in the next kernel that norms it.
LoweredRun product_deferred(const LoweringContext& at, const ProductSpec& spec) {
  const int64_t stride = row_stride(at.config.hidden);
  LoweredRun lowered{.operations = spec.operations,
                     .products = {product_of_layer(at, spec.product, Element::f32, stride)},
                     .emit = emits_product([spec, stride](const LoadedRun& run, const ProductPlace& p) {
                       const std::string name = node_name(spec.product);
                       const View<float> y =
                           p.step.s.projected.subview(0, as_written(p.step.s.rows, stride, spec.product.outputs));
                       emit_product(run, p.step, p.weights, name, p.step.input_of(spec.product.part), spec.product, y);
                       emit_bias(run, p.step, p.weights, name + "_bias", spec.product, y, stride);
                       p.residual = DeferredResidual{std::get<PlainResidual>(p.residual).x, y,
                                                     p.weights.post_gain(spec.post_norm->part)};
                     })};
  add_bias_kernel(lowered, spec);
  add_dequantize_kernel(lowered, spec.product);
  return lowered;
}

// Scaled by the product, capped after it.
LoweredRun head_product(const LoweringContext& at, const ProductSpec& spec) {
  const Op& product = spec.product;
  ProductTuning tuning = at.step.tuning.head.product;
  if (at.step.sampled_rows != at.step.rows) tuning = {};  // that of all rows
  LoweredRun lowered{
      .operations = spec.operations,
      .products = {{"head", spec.rows, product.cols, product.outputs, Element::f32,
                    row_stride(at.config.shard.most_of(at.config.vocab)), tuning, 0, at.config.logit_scale}}};
  add_bias_kernel(lowered, spec, at.config.logit_scale);
  const size_t cap = lowered.kernels.size();
  if (at.config.logit_cap != 0)
    lowered.kernels.push_back(
        kernel_choice<CapLogits>({"cap_logits", {cap_constant("kCap", at.config.logit_cap)}},
                                 cap_logits_shape(static_cast<unsigned>(spec.rows), product.outputs)));
  add_dequantize_kernel(lowered, product);
  lowered.emit = emits([product, cap](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                      HeadRows& head) {
    const DecodeState& s = step.s;
    const int64_t stride = s.logits_part_stride;
    head.logits = s.logits_part.subview(0, as_written(s.sampled_rows, stride, product.outputs));
    head.best = s.best.subview(0, 0);
    emit_product(run, step, weights, "logits", s.normed, product, s.logits_part);
    emit_bias(run, step, weights, "logits_bias", product, head.logits, stride);
    if (step.config.logit_cap != 0)
      step.g.launch("cap", run.kernel<CapLogits>(cap),
                    {.logits = head.logits, .n_live = s.inputs.n_sampled, .vocab = product.outputs, .stride = stride});
  });
  return lowered;
}

// y = W x + b. Gate and up are left in bf16, and their bias comes with the activation; that of qkv with the rotation,
// or after the product.
LoweredRun product_alone(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  const Op& product = spec.product;
  LoweredRun lowered{.operations = spec.operations};
  if (product.part == Part::gate_up) {
    lowered.products = {product_of_layer(at, product, Element::bf16, row_stride(product.outputs))};
    lowered.emit = emits([product](const LoadedRun& run, const StepPlace& step, const StepWeights& weights) {
      emit_product(run, step, weights, node_name(product), step.s.normed, product, step.s.gate_up);
    });
    add_dequantize_kernel(lowered, product);
    return lowered;
  }
  const bool is_router = product.part == Part::router, bare = is_router || rope_adds_bias(at, form);
  lowered.products = {product_of_layer(at, product, Element::f32, product.outputs)};
  lowered.emit =
      emits([product, bare, is_router](const LoadedRun& run, const StepPlace& step, const StepWeights& weights) {
        const View<float> y = is_router ? step.s.experts.logits : step.s.qkv;
        emit_product(run, step, weights, node_name(product), step.s.normed, product, y);
        if (!bare) emit_bias(run, step, weights, node_name(product) + "_bias", product, y, product.outputs);
      });
  if (!bare) add_bias_kernel(lowered, spec);
  add_dequantize_kernel(lowered, product);
  return lowered;
}

}  // namespace

KernelChoice norm_rows_choice(const LoweringContext& at, const Op& norm, bool post_norm) {
  const int64_t rows = is_of_head(norm) ? at.step.sampled_rows : at.step.rows;
  return kernel_choice<NormRows>(
      {"norm_rows", {constant("kNorm", norm.norm), {"kCols", at.config.hidden}, constant("kPostNorm", post_norm)}},
      norm_rows_shape(static_cast<unsigned>(rows)));
}
void emit_norm_rows(const Kernel<NormRows>& kernel, const StepPlace& step, const StepWeights& weights,
                    Residual& residual, const Op& norm) {
  const View<float> next = is_of_head(norm) ? View<float>{} : other_residual(residual, step.s);
  step.g.launch(norm.part == Part::feed_forward_norm ? "feed_forward_norm" : "norm", kernel,
                {.from = residual_in(residual, weights.norm(norm.part), step.config.eps, next),
                 .y = step.s.normed,
                 .n_live = is_of_head(norm) ? step.s.inputs.n_sampled : step.s.inputs.n_live});
  if (!is_of_head(norm)) settle_residual(residual, next);
}

LoweringResult by_library(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  if (!library_takes(at, spec.product)) return kNoLibrary;
  if (spec.end == End::logits) return head_product(at, spec);
  if (form == ResidualForm::gained) return kNoLibrary;
  if (spec.post_norm && form == ResidualForm::plain) return "its norm is left to the next kernel, and none takes it";
  if (spec.exchanged) return product_exchange(at, spec, form);
  if (spec.post_norm) return product_deferred(at, spec);
  return spec.end == End::add ? product_add(at, spec) : product_alone(at, spec, form);
}

// normed = norm(x). Nothing has been added to the residual before the first layer's attention.
LoweringResult lower_norm_rows(const LoweringContext& at, std::span<const Op> ops, ResidualForm form) {
  if (!begins(ops, {OpKind::norm})) return {};
  const Op& norm = ops[0];
  if (!library_takes(at, norm)) return kNoLibrary;
  if (norm.part == Part::attention_norm && begins(ops.subspan(1), {OpKind::product}) && ops[1].part == Part::gate_up)
    return LoweredRun{.operations = 1,
                      .emit = [](const LoadedRun&, EmitContext&) {}};  // as attention's product has read it
  LoweredRun lowered{.operations = 1,
                     .emit = emits([norm](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                          Residual& residual) {
                       residual = not_gained(residual, step);
                       emit_norm_rows(run.kernel<NormRows>(kernel_for(run, residual)), step, weights, residual, norm);
                     })};
  if (form != ResidualForm::deferred || norm.part == Part::attention_norm)
    lowered.kernels.push_back(norm_rows_choice(at, norm, false));
  if (form == ResidualForm::deferred) lowered.kernels.push_back(norm_rows_choice(at, norm, true));
  return lowered;
}

// activated = f(gate) * up, or f(up), and the product's bias before.
LoweringResult lower_gate(const LoweringContext& at, std::span<const Op> ops, ResidualForm) {
  if (!begins(ops, {OpKind::activate})) return {};
  const bool gated = ops[0].gated, adapted = at.step.adapters.any();
  const int64_t cols = matrix_size(at.config, Part::gate_up).outputs, stride = row_stride(cols);
  std::vector<Constant> constants = {constant("kActivation", at.config.activation),
                                     constant("kGated", gated),
                                     constant("kBias", at.config.biases.gate_up),
                                     constant("kRagged", cols != stride),
                                     {"kPasses", gate_passes(static_cast<unsigned>(at.step.rows))}};
  const LaunchShape shape = gate_shape(static_cast<unsigned>(at.step.rows), at.config.intermediate, gated);
  if (adapted) constants.push_back(rank_constant(at));
  return LoweredRun{
      .operations = 1,
      .kernels = {adapted ? kernel_choice<AdaptedGate>({"adapted_gate", constants}, shape)
                          : kernel_choice<Gate>({"gate", constants}, shape)},
      .emit = emits([gated, adapted, cols, stride](const LoadedRun& run, const StepPlace& step,
                                                   const StepWeights& weights, const RowAdapters& adapters) {
        const Gate gate{.from = {step.s.gate_up.subview(0, as_written(step.s.rows, stride, cols)), stride},
                        .to = activated_out(step, weights),
                        .n_live = step.s.inputs.n_live,
                        .outputs = step.config.intermediate,
                        .bias = weights.matrix(Part::gate_up).bias};
        const char* const name = gated ? "gate" : "activate";
        if (adapted)
          step.g.launch(name, run.kernel<AdaptedGate>(), {gate, adapter_in(adapters, step.s, Part::gate_up)});
        else
          step.g.launch(name, run.kernel<Gate>(), gate);
      })};
}

}  // namespace nodewright
