// Products of a library (cuBLASLt), and what stands between them: norms, activations, sums.
#include "kernels_src/adapters/adapted_gate_up.h"
#include "kernels_src/elementwise/add_bias.h"
#include "kernels_src/elementwise/gate.h"
#include "kernels_src/residual/norm_add.h"
#include "kernels_src/residual/norm_rows.h"
#include "kernels_src/sampling/cap_logits.h"
#include "models/lowering/lowering_rows.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

constexpr const char* kNoLibrary = "the step's products are kernels of its own";

// Whether the operation is the head's, whose rows are the sampled ones; a layer's rows are all.
bool is_of_head(const Op& op) { return op.part == Part::final_norm || op.part == Part::head; }
bool library_takes(const Situation& at, const Op& op) {
  return is_of_head(op) ? at.step.has_head_product() : at.step.with_products();
}

// Elements of rows `stride` apart: a product writes no padding after its last row.
uint64_t as_written(int64_t rows, int64_t stride, int64_t outputs) { return count_of((rows - 1) * stride + outputs); }

template <class T, class U>
void emit_product(const LoadedRun& run, Emission& e, const std::string& name, View<T> x, const Op& product, View<U> y) {
  const auto& plan = run.products.at(0);
  e.g.product(name, plan,
              {.a = x,
               .b = e.matrix(product.part).data,
               .c = {},
               .bias = {},
               .y = y,
               .workspace = plan->workspace_bytes() > 0 ? e.s.workspace : View<uint8_t>{}});
}

ProductChoice product_of_layer(const Situation& at, const Op& product, Element output, int64_t y_stride, float beta,
                               float alpha = 1) {
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
void add_bias_kernel(Lowered& lowered, const Op& product, int64_t rows, float scale = 1) {
  if (!product.bias) return;
  lowered.kernels.push_back(kernel_choice<AddBias>({"add_bias", {factor_constant("kScale", scale)}},
                                                   add_bias_shape(static_cast<unsigned>(rows), product.outputs)));
}
void emit_bias(const LoadedRun& run, Emission& e, const std::string& name, const Op& product, View<float> y,
               int64_t y_stride) {
  if (!product.bias) return;
  e.g.launch(name, run.kernel<AddBias>(),
             {.y = y,
              .bias = e.matrix(product.part).bias,
              .n_live = is_of_head(product) ? e.s.inputs.n_sampled : e.s.inputs.n_live,
              .outputs = product.outputs,
              .y_stride = y_stride});
}

void emit_norm_rows(const LoadedRun& run, Emission& e, const Op& norm) {
  const bool of_head = is_of_head(norm);
  e.g.launch(norm.part == Part::feed_forward_norm ? "feed_forward_norm" : "norm", run.kernel<NormRows>(),
             {.x = e.s.residual,
              .gain = e.norm(norm.part).gain,
              .y = e.s.normed,
              .n_live = of_head ? e.s.inputs.n_sampled : e.s.inputs.n_live,
              .eps = e.config.eps,
              .shift = e.norm(norm.part).shift});
}

}  // namespace

// normed = norm(x).
Attempt lower_norm_rows(const Situation& at, std::span<const Op> ops, Travel) {
  if (!begins(ops, {OpKind::norm})) return {};
  const Op& norm = ops[0];
  if (!library_takes(at, norm)) return kNoLibrary;
  if (norm.part == Part::attention_norm && begins(ops.subspan(1), {OpKind::product}) && ops[1].part == Part::gate_up)
    return Lowered{.operations = 1, .emit = [](const LoadedRun&, Emission&) {}};  // as attention's product has read it
  const int64_t rows = is_of_head(norm) ? at.step.sampled_rows : at.step.rows;
  return Lowered{
      .operations = 1,
      .kernels = {kernel_choice<NormRows>({"norm_rows", {constant("kNorm", norm.norm), {"kCols", at.config.hidden}}},
                                          norm_rows_shape(static_cast<unsigned>(rows)))},
      .emit = [norm](const LoadedRun& run, Emission& e) { emit_norm_rows(run, e, norm); }};
}

// x += W y + b, in place.
Attempt lower_product_add(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::product, OpKind::add})) return {};
  const Op& product = ops[0];
  if (travel != Travel::plain || !library_takes(at, product)) return kNoLibrary;
  const int64_t stride = row_stride(at.config.hidden);
  Lowered lowered{.operations = 2,
                  .products = {product_of_layer(at, product, Element::f32, stride, 1, at.config.residual_scale)},
                  .emit = [product, stride](const LoadedRun& run, Emission& e) {
                    emit_product(run, e, node_name(product), e.input_of(product.part), product, e.s.residual);
                    emit_bias(run, e, node_name(product) + "_bias", product, e.s.residual, stride);
                  }};
  add_bias_kernel(lowered, product, at.step.rows, at.config.residual_scale);
  return lowered;
}

// x += the sum over the ranks of W y + b, or its norm: a product, and the exchange in a node of its own.
Attempt lower_product_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  const bool normed = begins(ops, {OpKind::product, OpKind::reduce, OpKind::norm, OpKind::add});
  if (!normed && !begins(ops, {OpKind::product, OpKind::reduce, OpKind::add})) return {};
  const Op& product = ops[0];
  if (travel != Travel::plain || !library_takes(at, product)) return kNoLibrary;
  const Op post_norm = ops[2];
  if (normed && post_norm.norm == Norm::layer) return "it is a LayerNorm";
  const int64_t stride = row_stride(at.config.hidden);
  const ExchangedSum sum{.bias = product.bias,
                         .adds = !normed,
                         .bulk = sends_bulk(at.config, at.step, travel),
                         .adapted = at.step.adapters.any()};
  Lowered lowered{.operations = normed ? size_t{4} : size_t{3},
                  .kernels = exchange_choices(at, sum, travel),
                  .products = {product_of_layer(at, product, sum.bulk ? Element::bf16 : Element::f32, stride, 0)},
                  .emit = [product, post_norm, normed, stride, sum](const LoadedRun& run, Emission& e) {
                    const uint64_t written = as_written(e.s.rows, stride, product.outputs);
                    if (sum.bulk)
                      emit_product(run, e, node_name(product), e.input_of(product.part), product,
                                   as_bf16(e.s.partial).subview(0, written));
                    else
                      emit_product(run, e, node_name(product), e.input_of(product.part), product,
                                   e.s.partial.subview(0, written));
                    emit_exchange(run, 0, e, product, e.s.partial.subview(0, written), sum, Travel::plain);
                    if (!normed) return;
                    e.g.launch(node_name(product) + "_norm", run.kernel<NormAdd>(run.kernels.size() - 1),
                               {.x = e.s.projected,
                                .gain = e.post_gain(post_norm.part),
                                .residual = e.s.residual,
                                .n_live = e.s.inputs.n_live,
                                .stride = stride,
                                .eps = e.config.eps});
                  }};
  if (normed)
    lowered.kernels.push_back(
        kernel_choice<NormAdd>({"norm_add", {constant("kNorm", post_norm.norm), constant("kBias", 0)}},
                               norm_add_shape(static_cast<unsigned>(at.step.rows))));
  return lowered;
}

// x += norm(W y + b): a product, then a kernel that norms and adds.
Attempt lower_product_norm_add(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::product, OpKind::norm, OpKind::add})) return {};
  const Op &product = ops[0], &post_norm = ops[1];
  if (travel != Travel::plain || !library_takes(at, product)) return kNoLibrary;
  if (post_norm.norm == Norm::layer) return "it is a LayerNorm";
  const int64_t stride = row_stride(at.config.hidden);
  Lowered lowered{.operations = 3,
                  .kernels = {kernel_choice<NormAdd>(
                      {"norm_add", {constant("kNorm", post_norm.norm), constant("kBias", product.bias)}},
                      norm_add_shape(static_cast<unsigned>(at.step.rows)))},
                  .products = {product_of_layer(at, product, Element::f32, stride, 0)},
                  .emit = [product, post_norm, stride](const LoadedRun& run, Emission& e) {
                    emit_product(run, e, node_name(product), e.input_of(product.part), product, e.s.projected);
                    if (e.adapters != nullptr) emit_expand(run, e, product.part, e.s.projected, stride, 1);
                    e.g.launch(node_name(product) + "_norm", run.kernel<NormAdd>(),
                               {.x = e.s.projected.subview(0, as_written(e.s.rows, stride, product.outputs)),
                                .gain = e.post_gain(post_norm.part),
                                .residual = e.s.residual,
                                .n_live = e.s.inputs.n_live,
                                .stride = stride,
                                .eps = e.config.eps,
                                .bias = e.matrix(product.part).bias});
                  }};
  add_expand_kernel(lowered, at, product, 1);
  return lowered;
}

// y = W x + b. Of gate and up in bf16, whose bias comes with the activation; that of qkv with the rotation, or after.
Attempt lower_product(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::product})) return {};
  const Op& product = ops[0];
  if (!library_takes(at, product)) return kNoLibrary;
  Lowered lowered{.operations = 1};
  if (product.part == Part::head) {
    ProductTuning tuning = at.step.tuning.head.product;
    if (at.step.sampled_rows != at.step.rows) tuning.as_rows = 0;  // that of all rows
    lowered.products = {{"head", at.step.sampled_rows, product.cols, product.outputs, Element::f32,
                         row_stride(at.config.shard.most_of(at.config.vocab)), tuning, 0, at.config.logit_scale}};
    add_bias_kernel(lowered, product, at.step.sampled_rows, at.config.logit_scale);
    if (at.config.logit_cap != 0)
      lowered.kernels.push_back(
          kernel_choice<CapLogits>({"cap_logits", {cap_constant("kCap", at.config.logit_cap)}},
                                   cap_logits_shape(static_cast<unsigned>(at.step.sampled_rows), product.outputs)));
    lowered.emit = [product](const LoadedRun& run, Emission& e) {
      const int64_t stride = e.s.logits_part_stride;
      e.logits = e.s.logits_part.subview(0, as_written(e.s.sampled_rows, stride, product.outputs));
      e.best = e.s.best.subview(0, 0);
      emit_product(run, e, "logits", e.s.normed, product, e.s.logits_part);
      emit_bias(run, e, "logits_bias", product, e.logits, stride);
      if (e.config.logit_cap != 0)
        e.g.launch("cap", run.kernel<CapLogits>(run.kernels.size() - 1),
                   {.logits = e.logits, .n_live = e.s.inputs.n_sampled, .vocab = product.outputs, .stride = stride});
    };
    return lowered;
  }
  if (travel != Travel::plain) return kNoLibrary;
  if (product.part == Part::gate_up) {
    lowered.products = {product_of_layer(at, product, Element::bf16, row_stride(product.outputs), 0)};
    lowered.emit = [product](const LoadedRun& run, Emission& e) {
      emit_product(run, e, node_name(product), e.s.normed, product, e.s.gate_up);
    };
  } else {
    const bool is_router = product.part == Part::router, adapted = begins(ops.subspan(1), {OpKind::expand});
    const bool bare = is_router || rope_adds_bias(at, ops.subspan(adapted ? 2 : 1), travel);
    lowered.products = {product_of_layer(at, product, Element::f32, product.outputs, 0)};
    lowered.emit = [product, bare, is_router](const LoadedRun& run, Emission& e) {
      emit_product(run, e, node_name(product), e.s.normed, product, is_router ? e.s.experts.logits : e.s.qkv);
      if (!bare) emit_bias(run, e, node_name(product) + "_bias", product, e.s.qkv, product.outputs);
    };
    if (!bare) add_bias_kernel(lowered, product, at.step.rows);
  }
  return lowered;
}

// activated = f(gate) * up, or f(up), and the product's bias before.
Attempt lower_gate(const Situation& at, std::span<const Op> ops, Travel) {
  if (!begins(ops, {OpKind::activate})) return {};
  const bool gated = ops[0].gated, adapted = at.step.adapters.any();
  const int64_t cols = (gated ? 2 : 1) * at.config.intermediate, stride = row_stride(cols);
  std::vector<Constant> constants = {constant("kActivation", at.config.activation), constant("kGated", gated),
                                     constant("kBias", at.config.biases.gate_up), constant("kRagged", cols != stride)};
  const LaunchShape shape = gate_shape(static_cast<unsigned>(at.step.rows), at.config.intermediate, gated);
  if (adapted) constants.push_back(rank_constant(at));
  return Lowered{.operations = 1,
                 .kernels = {adapted ? kernel_choice<AdaptedGate>({"adapted_gate", constants}, shape)
                                     : kernel_choice<Gate>({"gate", constants}, shape)},
                 .emit = [gated, adapted, cols, stride](const LoadedRun& run, Emission& e) {
                   const auto launch = [&]<class Args>(Args args) {
                     args.x = e.s.gate_up.subview(0, as_written(e.s.rows, stride, cols));
                     args.y = e.s.activated;
                     args.n_live = e.s.inputs.n_live;
                     args.outputs = e.config.intermediate;
                     args.x_stride = stride;
                     args.y_stride = e.matrix(Part::down).stride;
                     args.bias = e.matrix(Part::gate_up).bias;
                     e.g.launch(gated ? "gate" : "activate", run.kernel<Args>(), args);
                   };
                   if (adapted)
                     launch(AdaptedGate{.adapter = adapter_in(e, Part::gate_up)});
                   else
                     launch(Gate{});
                 }};
}

}  // namespace nodewright
