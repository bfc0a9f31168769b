// Products: a pattern of operations asks for one (ProductSpec), and engines say whether they multiply it in a step, or
// why not: tiles on tensor cores, rows by dot products, a library. A new pattern or engine is a line in product.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/team/team_plan.h"
#include "kernels_src/residual/norm_rows.h"
#include "models/lowering/lowering.h"
#include "models/weights/row_stride.h"

namespace nodewright {

// What happens to W x + b.
enum class End : uint8_t {
  store,    // it is left as it is
  add,      // it is added to the residual, or its norm is
  gate_up,  // f(gate) * up, or f(up), is left
  logits,   // it is scaled and capped, and the largest of each part is left beside it
};

// A product as a run of operations asks for it.
struct ProductSpec {
  size_t operations = 0;             // of the run
  Op product = {};                   // the matrix: its part, cols, outputs and bias
  End end = End::store;              // what becomes of the result
  int64_t rows = 0;                  // of x
  std::optional<Op> norm = {};       // of x, which is the residual; none: x is as attention or activation left it
  std::optional<Op> post_norm = {};  // between the product and the residual
  bool gated = false;                // of gate_up
  bool exchanged = false;            // the result is the sum over the ranks of a team
  bool adapted = false;              // rows may have adapters
  int64_t unit() const { return gated ? 2 : 1; }  // rows of W that make one output: a gate row and its up row
};

// What multiplies. Says why not, where it does not.
using ProductEngine = Attempt (*)(const Situation& at, const ProductSpec& spec, Travel travel);
struct NamedEngine {
  std::string_view name;  // of the kernels that it takes for the pattern
  ProductEngine take;
};
// Operations that are one product, and what multiplies it, the best first.
struct ProductPattern {
  std::optional<ProductSpec> (*match)(const Situation& at, std::span<const Op> ops);  // looks at the first of `ops`
  std::span<const NamedEngine> engines;
};
std::span<const ProductPattern> product_patterns();

// lower_projections.cpp: kernels of the step's own.
Attempt in_tiles(const Situation& at, const ProductSpec& spec, Travel travel);
Attempt in_gained_tiles(const Situation& at, const ProductSpec& spec, Travel travel);  // of the head
Attempt by_rows(const Situation& at, const ProductSpec& spec, Travel travel);
Attempt before_exchange(const Situation& at, const ProductSpec& spec, Travel travel);  // which is a node of its own
// lower_products.cpp
Attempt by_library(const Situation& at, const ProductSpec& spec, Travel travel);
// lower_experts.cpp
Attempt experts_in_tiles(const Situation& at, const ProductSpec& spec, Travel travel);
Attempt experts_by_rows(const Situation& at, const ProductSpec& spec, Travel travel);

// Whether projections of a step of products are tiles that hold their rows, on this device.
bool holds_rows(const Situation& at);
// Whether projections are a library's products.
bool is_library_used(const Situation& at, Travel travel);
// Whether the bias of qkv, as a library's product, is left to the kernel that rotates its heads.
bool rope_adds_bias(const Situation& at, Travel travel);
inline Constant rank_constant(const Situation& at) { return {"kRank", at.step.adapters.rank}; }
inline Constant ranks_constant(const Situation& at) { return {"kRanks", at.config.shard.ranks}; }
// That of what is added to the residual.
inline Constant residual_scale(const Situation& at) { return factor_constant("kScale", at.config.residual_scale); }

// ---- The arguments of kernels, each block filled here and nowhere else

// What the nodes of a product are made from.
struct ProductPlace {
  const StepPlace& step;
  const StepWeights& weights;
  Residual& residual;
  const RowAdapters& adapters;
  RankPlace& ranks;

  // Values that a rank gives to an exchange.
  uint64_t values() const { return count_of(step.s.rows * step.config.hidden); }
};
template <class F>  // f(run, place)
Emit emits_product(F f) {
  return emits([f = std::move(f)](const LoadedRun& run, const StepPlace& step, const StepWeights& weights,
                                  Residual& residual, const RowAdapters& adapters, RankPlace& ranks) {
    f(run, ProductPlace{step, weights, residual, adapters, ranks});
  });
}

// Where a product's result goes when it reaches the residual.
struct SumTo {
  Op product = {};
  std::optional<Part> post_norm = {};  // between the two: then it goes into `projected`
  Travel travel = Travel::plain;
  bool adds() const { return !post_norm; }
};
inline SumTo sum_to(const ProductSpec& spec, Travel travel) {
  return {spec.product, spec.post_norm ? std::optional(spec.post_norm->part) : std::nullopt, travel};
}
// Fills `residual`, or else `sum` or `y`, and `next` of a kernel of `blocks` blocks; the residual goes on in that form.
template <class Args>
void fill_sum(Args& args, const SumTo& to, uint64_t blocks, const ProductPlace& p) {
  const DecodeState& s = p.step.s;
  if (to.adds()) {
    if constexpr (requires { args.residual; }) args.residual = s.residual;
    p.residual = PlainResidual{s.residual};
  } else {
    if constexpr (requires { args.sum; })
      args.sum = s.projected;
    else if constexpr (requires { args.y; })
      args.y = s.projected;
    if (to.travel == Travel::deferred)
      p.residual =
          DeferredResidual{std::get<PlainResidual>(p.residual).x, s.projected, p.weights.post_gain(*to.post_norm)};
  }
  if constexpr (requires { args.next; })
    if (to.travel == Travel::gained)
      args.next = leave_gained(p.residual, s, p.weights.gain_after(to.product.part), blocks);
}

// The matrix and the rows that it is multiplied with.
template <class Args>
Args product_args(const StepPlace& step, const StepWeights& weights, const Op& product) {
  const WeightMatrix& w = weights.matrix(product.part);
  Args args{};
  args.weight = w.data;
  if constexpr (requires { args.bias; }) args.bias = w.bias;
  if constexpr (requires { args.outputs; }) args.outputs = product.outputs;
  if constexpr (requires { args.n_live; })
    args.n_live = product.part == Part::head ? step.s.inputs.n_sampled : step.s.inputs.n_live;
  if constexpr (requires { args.x_stride; }) args.x = step.input_of(product.part), args.x_stride = w.stride;
  if constexpr (requires { args.residual_stride; }) args.residual_stride = row_stride(step.config.hidden);
  if constexpr (requires { args.eps; }) args.eps = step.config.eps;
  return args;
}
// The same, with what rows' adapters give and what the ranks exchange.
template <class Args>
Args product_args(const ProductPlace& p, const Op& product) {
  Args args = product_args<Args>(p.step, p.weights, product);
  if constexpr (requires { args.adapter; }) args.adapter = adapter_in(p.adapters, p.step.s, product.part);
  if constexpr (requires { args.exchange; }) args.exchange = p.ranks.packets->exchange(p.values());
  return args;
}

// ---- What stands in nodes of their own before or after a product

// normed = norm(x), where products read normed rows: all, or of the final norm those that choose (lower_products.cpp).
KernelChoice norm_rows_choice(const Situation& at, const Op& norm);
void emit_norm_rows(const Kernel<NormRows>& kernel, const StepPlace& step, const StepWeights& weights, const Op& norm);

// Where rows may have adapters: what they add to a product, after it where something else stands between it and its
// expand operation. Nothing elsewhere.
void add_expand_kernel(Lowered& lowered, const Situation& at, const Op& product, float scale);
// `kernel`: its place among the run's.
void emit_expand(const LoadedRun& run, const StepPlace& step, const RowAdapters& adapters, Part part, View<float> y,
                 int64_t y_stride, size_t kernel);

// What the ranks of a team exchange after a product.
struct ExchangedSum {
  SumTo to = {};
  bool bias = false;     // the product's, which is added there
  bool bulk = false;     // in bf16, by a bulk exchange
  int64_t chosen = 0;    // of a mixture: how many experts of a row have given a value each; 0: there is one
  bool adapted = false;  // what rows' adapters give is added before it is sent
  bool is_lane = false;  // beside another lane's products
};
// Prompts, whose exchanges take their time by the byte, send what their products give in bf16 and in bulk.
bool sends_bulk(const ModelConfig& config, const StepShape& step, Travel travel);
// Room for floats, as room for as many values in bf16.
inline View<bf16> as_bf16(View<float> floats) { return {reinterpret_cast<bf16*>(floats.data), floats.count}; }
inline ExchangedSum exchanged_sum(const Situation& at, const ProductSpec& spec, Travel travel) {
  return {.to = sum_to(spec, travel), .adapted = spec.adapted, .is_lane = at.step.is_lane};
}
// In which order a kernel of tiles adds the squares of what it leaves: lanes of a row; 0: by blocks of 256 columns.
struct TileOrder {
  int64_t lanes = 0, splits = 1;
  unsigned blocks = 0;  // of the kernel
};
TileOrder tile_order(const KernelChoice& tiles);

// Its kernels, and their nodes after such a product, which has given `y`. `kernel`: the place of the first.
// lower_exchange.cpp by packets, lower_collectives.cpp by a library's calls.
std::vector<KernelChoice> exchange_choices(const Situation& at, const ExchangedSum& of, const TileOrder& order = {});
void emit_exchange(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y, const ExchangedSum& of);
std::vector<KernelChoice> gathered_sum_choices(const Situation& at, const ExchangedSum& of, const TileOrder& order);
void emit_gathered_sum(const LoadedRun& run, size_t kernel, const ProductPlace& p, View<float> y,
                       const ExchangedSum& of);
// The block of a kernel that takes a rank's own part of such a sum: y as it is or in bf16, and what is added to it.
template <class Args>
void fill_own(Args& args, const ProductPlace& p, View<float> y, const ExchangedSum& of) {
  args.n_live = p.step.s.inputs.n_live;
  args.cols = p.step.config.hidden;
  args.stride = row_stride(p.step.config.hidden);
  if (of.bulk && of.chosen == 0)
    args.y_bf16 = as_bf16(y);
  else
    args.y = y;
  if (of.bias) args.bias = p.weights.matrix(of.to.product.part).bias;
  if constexpr (requires { args.weights; })
    if (of.chosen > 0) args.weights = p.step.s.experts.weights;
  if constexpr (requires { args.adapter; }) args.adapter = adapter_in(p.adapters, p.step.s, of.to.product.part);
}
inline Constant scale_constant(const Situation& at, const SumTo& to) {
  return to.adds() ? residual_scale(at) : factor_constant("kScale", 1);
}
// A run of a product's kernel and these. `emit(run, place)` emits the product's node and returns what it has given.
template <class F>
Lowered with_exchange(const Situation& at, const ProductSpec& spec, const ExchangedSum& of, KernelChoice product,
                      F emit, const TileOrder& order = {}) {
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
