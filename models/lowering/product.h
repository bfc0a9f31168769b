// Lowers matrix products W x + b. A ProductPattern recognizes operations that belong to one product (its norm, the
// product, what becomes of the result) and describes them as a ProductSpec. The engines of the pattern are then tried
// in order: tiles on tensor cores, rows by dot products, a library. Each lowers the product or returns why it cannot in
// this step. A new pattern or engine is a line in product.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/team/team_plan.h"
#include "kernels_src/argument_blocks.h"
#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/residual/norm_rows.h"
#include "models/lowering/lowering.h"
#include "models/weights/row_stride.h"

namespace nodewright {

// The epilogue: what becomes of W x + b.
enum class End : uint8_t {
  store,    // stored as it is
  add,      // added to the residual; after a post norm, if there is one
  gate_up,  // f(gate) * up is stored, or f(up) without a gate
  logits,   // scaled, capped and stored, with the largest logit of each part
};

// One product, as a pattern has found it at the start of a list of operations.
struct ProductSpec {
  size_t operations = 0;  // how many operations it covers
  Op product = {};        // the product itself: its part, cols, outputs and bias
  End end = End::store;
  int64_t rows = 0;                  // rows of x
  std::optional<Op> norm = {};       // the norm of x, which is the residual; none: x comes from attention or activation
  std::optional<Op> post_norm = {};  // the norm between the product and the residual
  bool gated = false;                // End::gate_up has a gate
  bool exchanged = false;            // the result is the sum over the ranks of a device group
  bool adapted = false;              // rows may have LoRA adapters, which add to the result
  uint64_t parts = 0;                // in which the kernel leaves a row's squares or its best; 0: one a block
  int64_t unit() const { return gated ? 2 : 1; }  // rows of W for one element of the result: a gate row and its up row
};

// Lowers a product, or returns why it cannot.
using ProductEngine = LoweringResult (*)(const LoweringContext& at, const ProductSpec& spec, ResidualForm form);
struct NamedEngine {
  std::string_view name;  // the kernels that it uses for the pattern, in --why
  ProductEngine take;
};
// A pattern of operations that are one product, and its engines, the best first.
struct ProductPattern {
  std::optional<ProductSpec> (*match)(const LoweringContext& at, std::span<const Op> ops);  // at the start of `ops`
  std::span<const NamedEngine> engines;
};
std::span<const ProductPattern> product_patterns();

// lower_projections.cpp: this library's kernels.
LoweringResult in_tiles(const LoweringContext& at, const ProductSpec& spec, ResidualForm form);
LoweringResult in_gained_tiles(const LoweringContext& at, const ProductSpec& spec,
                               ResidualForm form);  // the head alone
LoweringResult in_normed_tiles(const LoweringContext& at, const ProductSpec& spec,
                               ResidualForm form);  // the head alone, its norm in another node
LoweringResult by_rows(const LoweringContext& at, const ProductSpec& spec, ResidualForm form);
LoweringResult before_exchange(const LoweringContext& at, const ProductSpec& spec,
                               ResidualForm form);  // the exchange is another node
// lower_products.cpp
LoweringResult by_library(const LoweringContext& at, const ProductSpec& spec, ResidualForm form);
// lower_experts.cpp
LoweringResult experts_in_tiles(const LoweringContext& at, const ProductSpec& spec, ResidualForm form);
LoweringResult experts_by_rows(const LoweringContext& at, const ProductSpec& spec, ResidualForm form);

// Whether the projections of the step are tiles that keep x in registers, on this device.
bool holds_rows(const LoweringContext& at);
// Whether the projections are a library's products.
bool is_library_used(const LoweringContext& at, ResidualForm form);
// Whether qkv is a library's product without its bias, which the kernel that rotates the heads adds.
bool rope_adds_bias(const LoweringContext& at, ResidualForm form);
inline Constant rank_constant(const LoweringContext& at) { return {"kAdapterRank", at.step.adapters.rank}; }
inline Constant ranks_constant(const LoweringContext& at) { return {"kRanks", at.config.shard.ranks}; }
// The factor of everything that is added to the residual.
inline Constant residual_scale(const LoweringContext& at) {
  return factor_constant("kScale", at.config.residual_scale);
}

// ---- Argument structs of kernels: a group of fields that several kernels share (an argument block) is filled here

// The parts of an emit context from which a product's nodes are made.
struct ProductPlace {
  const StepPlace& step;
  const StepWeights& weights;
  Residual& residual;
  const RowAdapters& adapters;
  RankPlace& ranks;

  // Values that each rank sends in an exchange.
  uint64_t values() const { return count_of(step.s.rows * step.config.hidden); }
};
template <class F>  // f(run, place)
Emit emits_product(F f) {
  return emits([f = std::move(f)](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                  Residual& residual, const RowAdapters& adapters, RankPlace& ranks) {
    f(run, ProductPlace{step, weights, residual, adapters, ranks});
  });
}

// Where the result of a product with End::add goes.
struct SumTo {
  Op product = {};
  std::optional<Part> post_norm = {};  // the norm before the residual, which reads the result from `projected`
  ResidualForm form = ResidualForm::plain;
  bool adds() const { return !post_norm; }
};
inline SumTo sum_to(const ProductSpec& spec, ResidualForm form) {
  return {spec.product, spec.post_norm ? std::optional(spec.post_norm->part) : std::nullopt, form};
}
// Fills the block of the results of a kernel that leaves squares in `parts`: AddTo or SumOut, or RowsOut before a post
// norm. Sets p.residual to the form in which the kernel leaves it.
template <class To>
void fill_sum(To& to, const SumTo& of, uint64_t parts, const ProductPlace& p) {
  const DecodeState& s = p.step.s;
  const int64_t stride = row_stride(p.step.config.hidden);
  if constexpr (std::is_same_v<To, RowsOut<float>>)
    to = {s.projected, stride};
  else
    to.stride = stride;
  if (of.adds()) {
    if constexpr (requires { to.residual; }) to.residual = s.residual;
    p.residual = PlainResidual{s.residual};
  } else {
    if constexpr (requires { to.sum; }) to.sum = s.projected;
    if (of.form == ResidualForm::deferred)
      p.residual =
          DeferredResidual{std::get<PlainResidual>(p.residual).x, s.projected, p.weights.post_gain(*of.post_norm)};
  }
  if constexpr (requires { to.next; })
    if (of.form == ResidualForm::gained)
      to.next = leave_gained(p.residual, s, p.weights.gain_after(of.product.part), parts);
}

// The last kernel of a run takes a deferred residual, the first any other.
inline size_t kernel_for(const LoadedRun& run, const Residual& residual) {
  return std::holds_alternative<DeferredResidual>(residual) ? run.kernels.size() - 1 : 0;
}

// What the product of down reads.
inline RowsOut<bf16> activated_out(const StepPlace& step, const StepWeights& weights) {
  return {step.s.activated, weights.matrix(Part::down).stride};
}

// Fills the blocks of the matrix and of bf16 rows of x.
template <class Args>
Args product_args(const StepPlace& step, const StepWeights& weights, const Op& product) {
  const WeightMatrix& w = weights.matrix(product.part);
  Args args{};
  args.w = {w.data, w.bias, product.outputs};
  if constexpr (requires { args.from.x_stride; }) args.from = {step.input_of(product.part), w.stride};
  if constexpr (requires { args.n_live; })
    args.n_live = product.part == Part::head ? step.s.inputs.n_sampled : step.s.inputs.n_live;
  return args;
}
// Fills those, and the blocks of adapters and of the exchange where the kernel has them.
template <class Args>
Args product_args(const ProductPlace& p, const Op& product) {
  if constexpr (requires { &Args::adapter; }) {
    return {product_args<decltype(Args::of)>(p, product), adapter_in(p.adapters, p.step.s, product.part)};
  } else {
    Args args = product_args<Args>(p.step, p.weights, product);
    if constexpr (requires { args.exchange; }) args.exchange = p.ranks.packets->exchange(p.values());
    return args;
  }
}
template <class Args>
Args& without_adapter(Args& args) {
  return args;
}
template <class Args>
Args& without_adapter(WithAdapter<Args>& args) {
  return args.of;
}

// ---- Nodes before and after the node of a product

// The kernel that computes normed = norm(x) for a library's product: of all rows, or before the head of the rows that
// sample (lower_products.cpp).
KernelChoice norm_rows_choice(const LoweringContext& at, const Op& norm, bool post_norm);
void emit_norm_rows(const Kernel<NormRows>& kernel, const StepPlace& step, const StepWeights& weights,
                    Residual& residual, const Op& norm);

// Where rows may have adapters, appends to `lowered` the kernel that adds them to the product; for engines that must
// add them before the operation that follows the product.
void add_expand_kernel(LoweredRun& lowered, const LoweringContext& at, const Op& product, float scale);
// Emits that kernel, the `kernel`-th of the run.
void emit_expand(const LoadedRun& run, const StepPlace& step, const RowAdapters& adapters, Part part, View<float> y,
                 int64_t y_stride, size_t kernel);

// A sum over the ranks of a device group, in nodes after the node of the product.
struct ExchangedSum {
  SumTo to = {};
  bool bias = false;     // these nodes add the product's bias
  bool bulk = false;     // the ranks send bf16 by a bulk exchange, not floats by packets
  int64_t chosen = 0;    // of a mixture: experts of a row, each of which has a value to add up; 0: there is one value
  bool adapted = false;  // these nodes add the rows' adapters
  bool is_lane = false;  // they run while another lane computes products
};
// Whether the exchange is a bulk exchange: in prompts, where the number of bytes decides how long it takes.
bool sends_bulk(const ModelConfig& config, const StepShape& step, ResidualForm form);
// The memory of these floats, for as many bf16.
inline View<bf16> as_bf16(View<float> floats) { return {reinterpret_cast<bf16*>(floats.data), floats.count}; }
inline ExchangedSum exchanged_sum(const LoweringContext& at, const ProductSpec& spec, ResidualForm form) {
  return {.to = sum_to(spec, form), .adapted = spec.adapted, .is_lane = at.step.is_lane};
}
// The order in which a kernel in tiles adds up the squares of a row, which other kernels keep to get the same bits.
struct TileOrder {
  int64_t lanes = 0;    // lanes of a warp that share a row; 0: the order is by blocks of 256 columns
  int64_t splits = 1;   // blocks of a cluster
  unsigned blocks = 0;  // of the kernel
};
TileOrder tile_order(const KernelChoice& tiles);

// The kernels of such a sum, and the nodes that launch them after the product, whose result is y. `kernel`: the place
// of the first of them among the run's kernels. By packets in lower_exchange.cpp, by a library's calls in
// lower_collectives.cpp.
std::vector<KernelChoice> exchange_choices(const LoweringContext& at, const ExchangedSum& of,
                                           const TileOrder& order = {});
void emit_exchange(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y, const ExchangedSum& of);
std::vector<KernelChoice> gathered_sum_choices(const LoweringContext& at, const ExchangedSum& of,
                                               const TileOrder& order);
void emit_gathered_sum(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y,
                       const ExchangedSum& of);
// What this rank has of such a sum: y, in floats or bf16, and what joins it but adapters.
inline OwnIn own_in(const ProductPlace& p, View<float> y, const ExchangedSum& of) {
  OwnIn own{.n_live = p.step.s.inputs.n_live, .cols = p.step.config.hidden};
  if (of.bulk && of.chosen == 0)
    own.y_bf16 = as_bf16(y);
  else
    own.y = y;
  if (of.bias) own.bias = p.weights.matrix(of.to.product.part).bias;
  if (of.chosen > 0) own.weights = p.step.s.experts.weights;
  return own;
}
inline Constant scale_constant(const LoweringContext& at, const SumTo& to) {
  return to.adds() ? residual_scale(at) : factor_constant("kScale", 1);
}
// A product and the exchange after it as one run. `emit(run, place)` adds the product's node and returns its result.
template <class F>
LoweredRun with_exchange(const LoweringContext& at, const ProductSpec& spec, const ExchangedSum& of,
                         KernelChoice product, F emit, const TileOrder& order = {}) {
  std::vector<KernelChoice> kernels = exchange_choices(at, of, order);
  kernels.insert(kernels.begin(), std::move(product));
  return {.operations = spec.operations,
          .kernels = std::move(kernels),
          .emit = emits_product([emit = std::move(emit), of](const LoadedRun& run, const ProductPlace& p) {
            const View<float> y = emit(run, p);
            emit_exchange(run, 1, p, y, of);
          })};
}

}  // namespace nodewright
