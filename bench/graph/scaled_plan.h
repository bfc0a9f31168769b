// Plans of any size, in the shapes that engines have: what the graph library costs as they grow is measured with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/graph_builder.h"
#include "runtime/kernels/inline_kernel.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

// chain: each node reads what the one before it wrote. fan_out: all read what the first wrote. random: each reads two
// of the 64 latest buffers. cleared_arena: one fill of an arena, then each node has slices of its own. halo: each reads
// two neighbouring slices and writes the next. frozen_arena: each reads a weight of the arena its activations are in.
// random_arena: each reads four slices at random places and writes one. bodies: switches of 64 bodies of three nodes,
// each with weights of its own. conditionals: IF nodes over one buffer, up to 8000. loops: while loops, each after 20
// nodes.
enum class ScaledShape : uint8_t {
  chain,
  fan_out,
  random,
  cleared_arena,
  halo,
  frozen_arena,
  random_arena,
  bodies,
  conditionals,
  loops,
};
inline constexpr ScaledShape kScaledShapes[] = {
    ScaledShape::chain,        ScaledShape::fan_out,      ScaledShape::random,       ScaledShape::cleared_arena,
    ScaledShape::halo,         ScaledShape::frozen_arena, ScaledShape::random_arena, ScaledShape::bodies,
    ScaledShape::conditionals, ScaledShape::loops};
std::string_view to_string(ScaledShape shape);

NODEWRIGHT_ARGS(ScaledArgs, {
  Optional<Frozen<float>> w;
  In<float> a;
  Optional<In<float>> b, c, d;
  Out<float> y;
})
NODEWRIGHT_ARGS(ScaledLoopArgs, {
  In<float> a;
  Out<float> y;
  Condition again;
})

// The kernels of these plans. Their addresses are of no device: the plans can be built, checked, dumped and
// instantiated, and not run.
class ScaledPlans {
 public:
  explicit ScaledPlans(Device& device);

  // Adds `nodes` nodes of the shape, those of bodies included, or a few more, so that the last switch is whole.
  void add_to(GraphBuilder& g, ScaledShape shape, size_t nodes) const;

 private:
  InlineKernel source_, loop_source_;
  KernelCache kernels_;
  Kernel<ScaledArgs> kernel_;
  Kernel<ScaledLoopArgs> loop_kernel_;
};

}  // namespace nodewright
