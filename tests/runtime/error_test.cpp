#include "runtime/error.h"

#include <gtest/gtest.h>

#include "runtime/driver.h"

namespace nodewright {
namespace {

TEST(ErrorText, NamesActionObjectNumbersDriverAndAdviceInOneLine) {
  const Error error({.doing = "allocate device memory",
                     .object = "kv",
                     .detail = "needs 8 bytes,\n4 are free",
                     .driver = "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY",
                     .advice = "free some"});
  EXPECT_STREQ(error.what(),
               "cannot allocate device memory 'kv': needs 8 bytes, 4 are free; "
               "driver: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY; try: free some");
  EXPECT_EQ(error.parts().fault, Fault::run_time);
}

TEST(ErrorText, LeavesOutWhatIsNotKnown) {
  EXPECT_STREQ(Error({.doing = "start"}).what(), "cannot start");
  EXPECT_STREQ(Error({.doing = "read", .object = "a.json"}).what(), "cannot read 'a.json'");
}

TEST(ResultName, IsTheEnumeratorOrTheNumber) {
  EXPECT_EQ(result_name(CUDA_SUCCESS), "CUDA_SUCCESS");
  EXPECT_EQ(result_name(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(result_name(static_cast<CUresult>(12345)), "CUresult 12345");
}

}  // namespace
}  // namespace nodewright
