// Addresses among the scalars of kernels of ours. Those of foreign kernels: foreign_kernel_test.cpp.
#include "graph/patch.h"
#include "runtime/kernels/inline_kernel.h"
#include "tests/graph/blend_fixture.h"

NODEWRIGHT_ARGS(FarWord, {
  Out<uint32_t> y;
  uint64_t number;
})

namespace nodewright {
namespace {

class StrayPointerTest : public BlendTest {
 protected:
  StrayPointerTest() : kernels_(device()) {
    const InlineKernel source("far_word", kFarWordText, R"(
      NODEWRIGHT_KERNEL(far_word, FarWord, 32) {
        wait_for_inputs();
        if (threadIdx.x == 0) args.y.data[0] = static_cast<uint32_t>(args.number >> 32);
      })");
    kernel_ = kernels_.kernel<FarWord>(source, launch_shape_1d(1, 32));
  }

  KernelCache kernels_;
  Kernel<FarWord> kernel_;
  const Words x_ = words("x", 8), y_ = words("y", 1);
};

TEST_F(StrayPointerTest, AScalarFieldHoldsNoAddress) {
  GraphBuilder g(device(), "fields");
  expect_error([&] { g.launch("bad", kernel_, {.y = y_, .number = x_.address() + 4}); },
               {"node 'bad'", "'number' holds 0x", "an address in buffer 'x'", "make the field In<T>"});
  const auto node = g.launch("good", kernel_, {.y = y_, .number = 3ull << 32});
  ExplicitGraph graph(std::move(g).finish());
  expect_error([&] { graph.patch(node, &FarWord::number, y_.address()); },
               {"node 'good'", "'number' holds 0x", "an address in buffer 'y'"});
  PatchSet patches(graph);
  expect_error([&] { patches.set(node, &FarWord::number, y_.address()); }, {"an address in buffer 'y'"});
  graph.patch(node, &FarWord::number, 5ull << 32);
  graph.launch(stream_);
  EXPECT_EQ(values(y_)[0], 5u);
}

}  // namespace
}  // namespace nodewright
