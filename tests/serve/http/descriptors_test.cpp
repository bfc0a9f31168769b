// Connections that fit into the descriptors of the process.
#include "serve/http/sockets/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace nodewright {
namespace {

TEST(Descriptors, TheSoftLimitBecomesTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const size_t raised = raise_descriptor_limit();
  rlimit now{};
  getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(raised, std::min<size_t>(before.rlim_max, 1 << 20));
  EXPECT_EQ(now.rlim_cur, raised);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Descriptors, EnoughOfThemChangeNothing) {
  const HttpLimits usual;
  const HttpLimits limits = fitted(usual, 65536, 30);
  EXPECT_EQ(limits.connections, usual.connections);
  EXPECT_EQ(limits.kept_connections, usual.kept_connections);
  EXPECT_EQ(limits.told_connections, usual.told_connections);
}

TEST(Descriptors, FewOfThemLeaveRoomForTheEngineAndForProbes) {
  for (const size_t descriptors : {64u, 100u, 256u, 1024u, 4096u}) {
    constexpr size_t kOpen = 12;
    const HttpLimits limits = fitted({}, descriptors, kOpen);
    EXPECT_GE(limits.connections, 4u) << descriptors;
    EXPECT_GE(limits.kept_connections, 1u) << descriptors;
    EXPECT_LE(limits.connections + limits.kept_connections + limits.told_connections + kOpen + 16, descriptors);
  }
  EXPECT_EQ(fitted({}, 10, 10).connections, 4u) << "it serves somebody";
}

}  // namespace
}  // namespace nodewright
