// The typed views and arenas a layer author holds, and the check of a kernel against the struct it is given.
#include <gtest/gtest.h>

#include "runtime/kernels/kernel_cache.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory.h"
#include "tests/runtime/kernels/small_kernels.h"

namespace nodewright {
namespace {

TEST(Arena, TakesAlignedNamedPiecesInOrder) {
  Arena arena("slot0", 0x1000, 4096);
  const View<float> a = arena.take<float>("a", 3);
  const View<bf16> b = arena.take<bf16>("b", 5, "workspace");
  EXPECT_EQ(a.address(), 0x1000u);
  EXPECT_EQ(a.count, 3u);
  EXPECT_EQ(b.address(), 0x1100u);
  EXPECT_EQ(arena.used_bytes(), 256u + 10u);
  EXPECT_EQ(arena.ranges(), (std::vector<NamedRange>{{"a", 0x1000, 12, "activation"}, {"b", 0x1100, 10, "workspace"}}));
}

TEST(Arena, WithoutRoomNamesBytesNeededAndLeft) {
  Arena arena("slot0", 0x1000, 1000);
  arena.take<float>("a", 100);
  try {
    arena.take<float>("scores", 200);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cannot take from arena 'slot0' the piece 'scores': needs 200 x 4 bytes, 488 of 1000 are left after 1 "
                 "pieces");
  }
  EXPECT_THROW(arena.take<float>("huge", UINT64_MAX / 2), Error);  // the product overflows
  EXPECT_EQ(arena.ranges().size(), 1u);
}

TEST(View, BecomesTheRoleThatAsksForIt) {
  const View<float> view{reinterpret_cast<float*>(0x1000), 10};
  const In<float> in = view;
  const Out<float> out = view;
  EXPECT_EQ(in.data, out.data);
  EXPECT_EQ(in.count, 10u);
  EXPECT_EQ(view.subview(2, 8).address(), 0x1008u);
  EXPECT_THROW(view.subview(2, 9), Error);
  EXPECT_THROW(view.subview(11, 0), Error);
  EXPECT_THROW(view.subview(1, UINT64_MAX), Error);
}

TEST(CheckKernel, NamesBothSizesOfTheArguments) {
  LoadedKernel kernel{.name = "scale", .args_bytes = 48, .max_threads = 128};
  try {
    check_kernel(kernel, sizeof(Scale), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has 48 bytes in the built code and 40 here"), std::string::npos)
        << error.what();
  }
  kernel.args_bytes = sizeof(Scale);
  EXPECT_NO_THROW(check_kernel(kernel, sizeof(Scale), launch_shape_1d(7, 128)));
  EXPECT_THROW(check_kernel(kernel, sizeof(Scale), launch_shape_1d(7, 129)), Error);
  EXPECT_THROW(check_kernel(kernel, sizeof(Scale), launch_shape_1d(0, 128)), Error);
  EXPECT_THROW(check_kernel(kernel, sizeof(Scale), {{1, 65536, 1}, {32, 1, 1}, 0}), Error);
}

}  // namespace
}  // namespace nodewright
