// How a step of so many rows is computed: decided here and nowhere else.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/model_config.h"

namespace nodewright {

// matvec: every weight is read once for a few rows, by kernels that are memory-bound and fuse what stands around.
// products: norms, library products on tensor cores and activations apart, and attention of a prompt in tiles.
enum class Arithmetic : uint8_t { matvec, products };

// fast: the sums of a row may be ordered as suits the size of the step, so that its last bits differ from size to size.
// invariant: one order on a device, whatever the size of the step and however a prompt is cut, at some cost in speed.
enum class Numerics : uint8_t { fast, invariant };

// Rows from which on products are used.
inline constexpr int64_t kProductsFromRows = 16;

// The bits of a row depend on the shape of its step, on its own tokens and on nothing else.
struct StepShape {
  StepShape(int64_t n, int64_t most_sampled, Arithmetic with, Numerics order = Numerics::fast)
      : rows(n), sampled_rows(std::min(n, most_sampled)), arithmetic(with), numerics(order) {}
  StepShape(int64_t n, Numerics order = Numerics::fast) : StepShape(n, n, Arithmetic::matvec, order) {}

  int64_t rows;
  int64_t sampled_rows;  // at most so many of them, the first, choose a token; products: the rest is a prompt's
  Arithmetic arithmetic;
  Numerics numerics;
  bool with_products() const { return arithmetic == Arithmetic::products; }
  bool has_head_product() const { return with_products() && sampled_rows >= kProductsFromRows; }
  // One token, and so no new key but its own: rotation and attention are one kernel.
  bool has_one_key() const { return rows == 1 && !with_products(); }
  bool operator==(const StepShape&) const = default;
};

// Of a network without biases and LayerNorms, whose feed-forward block has a gate: every family but GPT-2's.
inline bool takes_products(const ModelConfig& config) {
  return !config.biases && config.norm != Norm::layer && config.gated;
}

// `most_sampled`: rows that choose, at most. `products_from`: 0 is never. A library orders its sums as suits the rows,
// so invariant numerics take no products.
inline StepShape step_shape(const ModelConfig& config, int64_t rows, int64_t most_sampled, int64_t products_from,
                            Numerics numerics) {
  const bool products = products_from > 0 && rows >= products_from && takes_products(config);
  if (products && numerics == Numerics::fast) return {rows, most_sampled, Arithmetic::products};
  return {rows, numerics};
}

}  // namespace nodewright
