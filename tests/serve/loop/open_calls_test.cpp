// Places for calls beside a large one.
#include "serve/loop/open_calls.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

TEST(OpenCalls, OneCallThatHasAllPlacesLeavesRoomForSmallOnes) {
  OpenCalls calls;
  ASSERT_TRUE(calls.may_add(4096, 4096));
  EXPECT_FALSE(calls.may_add(4097, 4096));
  calls.add(1, 4096);
  EXPECT_FALSE(calls.may_add(4096, 4096));
  EXPECT_TRUE(calls.may_add(2048, 4096));
  uint64_t small = 2;
  for (; calls.may_add(1, 4096); ++small) calls.add(small, 1);
  EXPECT_EQ(small, 4097u) << "as many calls as places";
  calls.remove(5, 1);
  EXPECT_TRUE(calls.may_add(1, 4096));
  EXPECT_FALSE(calls.may_add(2, 4096));
}

TEST(OpenCalls, TogetherStayWithinTheLimitTimesItsLogarithm) {
  OpenCalls calls;
  for (size_t size = 4096, call = 1; size > 0; --size)
    while (calls.may_add(size, 4096)) calls.add(call++, size);
  EXPECT_LT(calls.outputs(), 4096u * 10);
  EXPECT_FALSE(calls.may_add(1, 4096));
}

TEST(OpenCalls, CountEachCallAndForgetItWhenItHasEnded) {
  OpenCalls calls, others;
  calls.add(1, 3);
  calls.add(1, 2);
  calls.remove(1, 4);
  EXPECT_EQ(calls.of(1), 1u);
  others.add(1, 2);
  others.add(7, 5);
  calls.add(others);
  EXPECT_EQ(calls.of(1), 3u);
  EXPECT_EQ(calls.outputs(), 8u);
  calls.remove(1, 3);
  calls.remove(1, 3);
  EXPECT_EQ(calls.outputs(), 5u);
}

}  // namespace
}  // namespace nodewright
