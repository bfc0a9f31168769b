// Which rows of x a thread keeps as the bf16 they came in. For the host and the kernels.
#pragma once

namespace nodewright {

// `chunks`: of 8 columns a thread. In fp32 more than these would leave no registers for weights in flight.
constexpr bool keeps_packed(long long chunks) { return chunks > 4; }

}  // namespace nodewright
