// The rows of the table, each beside the kernels that it launches.
#pragma once

#include "models/lowering/lowering.h"

namespace nodewright {

// lower_ends.cpp
Attempt lower_embed(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_logits_gained(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_logits(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_logits(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_hidden(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_sample(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_projections.cpp
Attempt lower_tile_norm_gate_up(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_norm_gate_up(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_norm_project(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_norm_project(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_project_add(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_project_add(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_project(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_project(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_exchange.cpp
Attempt lower_embed_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_project_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_project_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_project_then_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
// Prompts, whose exchanges take their time by the byte, send what their products give in bf16 and in bulk.
bool sends_bulk(const ModelConfig& config, const StepShape& step, Travel travel);
// Room for floats, as room for as many values in bf16.
inline View<bf16> as_bf16(View<float> floats) { return {reinterpret_cast<bf16*>(floats.data), floats.count}; }
Attempt lower_gather(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_collectives.cpp, of StepShape::collectives. In which order a kernel of tiles adds the squares of what it
// leaves: lanes of a row; 0: by blocks of 256 columns.
struct TileOrder {
  int64_t lanes = 0, splits = 1;
  unsigned blocks = 0;  // of the kernel
};
TileOrder tile_order(const KernelChoice& tiles);
// As exchange_choices() and emit_exchange(). `node`: the product's name. A residual that is not left gained is settled
// by the caller.
std::vector<KernelChoice> gathered_sum_choices(const Situation& at, const ExchangedSum& of, Travel travel,
                                               const TileOrder& order = {});
void emit_gathered_sum(const LoadedRun& run, size_t kernel, Emission& e, const std::string& node, const Op& product,
                       View<float> y, const ExchangedSum& of, Travel travel);
Lowered gathered_embedding(const Situation& at, Travel travel);
Lowered gathered_head(const Situation& at);
Lowered gathered_norm_of_heads(const Situation& at);
inline constexpr std::string_view kAllGather = "all_gather";  // what their library nodes call

// The node of a product of kernels of its own, W x + b into `y`, rows as far apart as the residual's
// (lower_projections.cpp).
void launch_project(const LoadedRun& run, Emission& e, const Op& product, View<float> y);

// lower_experts.cpp
Attempt lower_route(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_expert_gate_up(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_norm_expert_gate_up(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_expert_down(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_expert_down_add(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_tile_expert_down_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_expert_down_exchange(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_norm_heads.cpp
Attempt lower_norm_heads_exchange(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_attention.cpp
Attempt lower_rope_flash_decode(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_rope_append(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_attend(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_products.cpp
Attempt lower_norm_rows(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_product_add(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_product_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_product_norm_add(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_product(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_gate(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_adapters.cpp
Attempt lower_norm_shrink(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_shrink(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_expand(const Situation& at, std::span<const Op> ops, Travel travel);

}  // namespace nodewright
