#include "bench/steady_core.h"

#include <gtest/gtest.h>

namespace nodewright::test {
namespace {

int allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  return CPU_COUNT(&allowed);
}

TEST(SteadyCore, HoldsTheThreadOnOneCoreAndLetsItGo) {
  const int before = allowed_cores();
  {
    SteadyCore core;
    EXPECT_EQ(allowed_cores(), 1);
    EXPECT_EQ(core.moves(), 0u);
    core.settle();
    EXPECT_EQ(allowed_cores(), 1);
  }
  EXPECT_EQ(allowed_cores(), before);
}

}  // namespace
}  // namespace nodewright::test
