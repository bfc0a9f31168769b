// NormGateUp and ProjectGateUp of rows with adapters, and Gate: what they add comes before the activation.
#pragma once

#include "kernels_src/elementwise/gate.h"
#include "kernels_src/product/end/adapter_in.h"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/project_gate_up.h"

namespace nodewright {

// The adapter's parts: gate and up, or up. Constants and launch shapes: those of the kernel without adapters, and
// kAdapterRank.
using AdaptedGateUp = WithAdapter<NormGateUp>;
using AdaptedProjectGateUp = WithAdapter<ProjectGateUp>;
using AdaptedGate = WithAdapter<Gate>;

}  // namespace nodewright
