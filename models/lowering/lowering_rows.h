// The rows of the lowering's table. Each lowers the first of `ops` or says why it cannot; it is in the file that
// launches its kernels.
#pragma once

#include <span>
#include <string_view>

#include "models/lowering/lowering.h"

namespace nodewright {

struct LoweringRow {
  std::string_view name;
  LoweringResult (*lower)(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
};

// lower_ends.cpp
LoweringResult lower_embed(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_hidden(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_sample(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

// lower_exchange.cpp
LoweringResult lower_embed_exchange(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_gather(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

// lower_collectives.cpp, for StepShape::collectives
LoweredRun gathered_embedding(const LoweringContext& at, ResidualForm form);
LoweredRun gathered_head(const LoweringContext& at);
LoweredRun gathered_norm_of_heads(const LoweringContext& at);
inline constexpr std::string_view kAllGather = "all_gather";  // what their library nodes call

// lower_experts.cpp
LoweringResult lower_route(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

// lower_norm_heads.cpp
LoweringResult lower_norm_heads_exchange(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

// lower_attention.cpp
LoweringResult lower_rope_flash_decode(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_rope_append(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_attend(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

// lower_products.cpp
LoweringResult lower_norm_rows(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_gate(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

// lower_adapters.cpp
LoweringResult lower_norm_shrink(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_shrink(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);
LoweringResult lower_expand(const LoweringContext& at, std::span<const Op> ops, ResidualForm form);

}  // namespace nodewright
