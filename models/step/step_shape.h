// How a step of a given number of rows is computed: decided here and nowhere else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels_src/attention/flash_decode.h"
#include "models/adapters/adapter_layout.h"
#include "models/config/model_config.h"
#include "models/step/hidden_states.h"
#include "models/step/network_form.h"
#include "models/tuning/step_tuning.h"

namespace nodewright {

// fast: the sums of a row may be ordered as suits the size of the step, so that its last bits differ from size to size.
// invariant: one order on a device, whatever the size of the step and however a prompt is cut, at some cost in speed.
enum class Numerics : uint8_t { fast, invariant };

// Rows of tiles that stay in registers where all products of a step are tiles past gained rows
// (bench/results/2026-11-28-h200-held-from-9.txt).
inline constexpr int64_t kHeldFromRows = 9, kGateUpHeldFromRows = 5;

// How many steps one launch of a decode plan runs, one after the other on the device. Rows that have ended leave it.
// loop: as long as a row goes on, `most` at most; else always `most` steps, in a plan of as many times the nodes.
struct LaunchSteps {
  int64_t most = 1;
  bool loop = false;
  bool several() const { return most > 1 || loop; }
  bool operator==(const LaunchSteps&) const = default;
};

// The bits of a row depend on the shape of its step, on its own tokens and on nothing else.
struct StepShape {
  StepShape(int64_t n, int64_t most_sampled, Arithmetic with, Numerics order = Numerics::fast)
      : rows(n), sampled_rows(std::min(n, most_sampled)), arithmetic(with), numerics(order) {}
  StepShape(int64_t n, Numerics order = Numerics::fast) : StepShape(n, n, Arithmetic::matvec, order) {}

  int64_t rows;
  int64_t sampled_rows;  // the first rows, at most this many, choose a token; products: the rest is a prompt's
  Arithmetic arithmetic;
  Numerics numerics;
  HiddenStates hidden = HiddenStates::none;
  LaunchSteps steps;
  StepTuning tuning;
  NetworkForm network;
  AdapterLimits adapters = {};   // that rows may have, each its own
  bool beside_adapters = false;  // its requests also pass through steps in which others have adapters
  bool collectives = false;      // of a part of a network: its ranks exchange by a library's calls, not by packets
  bool is_lane = false;          // another step's rows are computed beside it (models/step/lanes.h)
  bool with_products() const { return arithmetic == Arithmetic::products; }
  // The head is a library's product, unless it is a tile that holds its rows, which needs clusters.
  bool has_head_product() const { return with_products() && sampled_rows >= kProductsFromRows; }
  bool may_hold_head() const {
    // A tuned algorithm belongs to a head of all rows.
    const bool has_algorithm = sampled_rows == rows && tuning.head.product.names_algorithm();
    return has_head_product() && sampled_rows <= kHeldToRows && !has_algorithm;
  }
  int64_t hidden_rows() const {  // whose hidden states leave the step, at most
    return hidden == HiddenStates::none ? 0 : hidden == HiddenStates::last ? sampled_rows : rows;
  }
  // Whether a matrix is multiplied with `n` rows in tiles, where it is no library's product.
  bool takes_tiles(int64_t n) const {
    return arithmetic != Arithmetic::matvec && n >= kTilesFromRows && n <= kTilesToRows;
  }
  // Whether the projections of a step of products may all be tiles past rows of x that stay in registers, which needs
  // clusters, instead of a library's: unless one of those has been measured to be faster.
  bool may_hold() const {
    return with_products() && rows <= network.held_to() && !tuning.qkv.product.names_algorithm() &&
           !tuning.out.product.names_algorithm() && !tuning.gate_up.product.names_algorithm() &&
           !tuning.down.product.names_algorithm();
  }
  // Whether all projections of invariant numerics are tiles past rows of x that stay in registers, however many rows:
  // where kernels may leave rows times the next norm's gain, and no sum goes over ranks.
  bool always_holds(const ModelConfig& config) const {
    return numerics == Numerics::invariant && network.gained && config.hidden % 8 == 0 && !config.shard.is_part();
  }
  // Whether kernels that complete the residual may leave it times the next norm's gain, where all projections of the
  // step are in tiles: always with invariant numerics, else from 5 rows on. Up to 4 rows every block reads few of them:
  // 0.812 ms instead of 0.801 at 4, 0.863 instead of 0.867 at 8, 1.053 instead of 1.088 at 16 (Llama-3.2-1B, 1024 keys;
  // bench/results/2026-11-23-h200-gained-rows.txt). Held tiles of FP8 and int4 pay from 3 rows on.
  bool may_leave_gained(const ModelConfig& config) const {
    return always_holds(config) || ((may_hold() || (takes_tiles(rows) && (rows > 4 || network.quantized))) &&
                                    network.gained && config.hidden % 8 == 0);
  }
  // Whether a mixture's rows are grouped by expert: few rows have few experts in common.
  bool groups_by_expert() const { return arithmetic != Arithmetic::matvec && rows >= kTilesFromRows; }
  bool is_one_row() const { return rows == 1 && !with_products(); }
  // Rows that choose attend on tensor cores.
  bool takes_flash_decode(const ModelConfig& config) const { return FlashDecodeShape::takes(config.head_dim); }
  // All of them do: rotation and attention are one kernel. Those of larger steps may be a prompt's, whose keys each of
  // its rows would rotate for itself; and it sums the squares of all heads in an order of its own.
  bool takes_rope_flash_decode(const ModelConfig& config) const {
    const bool ordered = numerics == Numerics::invariant;
    return takes_flash_decode(config) && (!(with_products() || ordered) || rows <= kHeldToRows) &&
           !(ordered && config.head_norm == HeadNorm::width);
  }
  // Rows that attend one by one.
  int64_t single_rows(const ModelConfig& config) const { return takes_rope_flash_decode(config) ? rows : sampled_rows; }
  bool operator==(const StepShape&) const = default;
};

// `most_sampled`: rows that choose, at most. `from`: rows from which on products are used; 0: never; none: as suits the
// network. A library orders its sums as suits the rows, so invariant numerics take no products, and either one form of
// tiles for all rows or none (always_holds()).
// `measured`: what to do otherwise, on this device.
inline StepShape step_shape(const NetworkForm& network, int64_t rows, int64_t most_sampled, std::optional<int64_t> from,
                            Numerics numerics, const StepTuning& measured = {}) {
  StepShape shape(rows, numerics);
  shape.network = network;
  if (numerics == Numerics::invariant) return shape;
  shape.tuning = measured;
  if (!network.tiles) return shape;
  const int64_t least = from.value_or(network.products_from);
  const bool many = least > 0 && rows >= least;
  shape.arithmetic = measured.arithmetic.value_or(many ? Arithmetic::products : Arithmetic::tiles);
  if (shape.with_products() && !network.products) shape.arithmetic = Arithmetic::tiles;
  if (shape.with_products()) shape.sampled_rows = std::min(rows, most_sampled);
  return shape;
}

}  // namespace nodewright
