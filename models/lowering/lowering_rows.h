// The rows of the table, each beside the kernels that it launches. Each looks at the first of `ops`.
#pragma once

#include <span>
#include <string_view>

#include "models/lowering/lowering.h"

namespace nodewright {

struct LoweringRow {
  std::string_view name;
  Attempt (*lower)(const Situation& at, std::span<const Op> ops, Travel travel);
};

// lower_ends.cpp
Attempt lower_embed(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_hidden(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_sample(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_exchange.cpp
Attempt lower_embed_exchange(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_gather(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_collectives.cpp, of StepShape::collectives
Lowered gathered_embedding(const Situation& at, Travel travel);
Lowered gathered_head(const Situation& at);
Lowered gathered_norm_of_heads(const Situation& at);
inline constexpr std::string_view kAllGather = "all_gather";  // what their library nodes call

// lower_experts.cpp
Attempt lower_route(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_norm_heads.cpp
Attempt lower_norm_heads_exchange(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_attention.cpp
Attempt lower_rope_flash_decode(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_rope_append(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_attend(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_products.cpp
Attempt lower_norm_rows(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_gate(const Situation& at, std::span<const Op> ops, Travel travel);

// lower_adapters.cpp
Attempt lower_norm_shrink(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_shrink(const Situation& at, std::span<const Op> ops, Travel travel);
Attempt lower_expand(const Situation& at, std::span<const Op> ops, Travel travel);

}  // namespace nodewright
