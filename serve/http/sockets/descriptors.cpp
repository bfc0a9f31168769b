#include "serve/http/sockets/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace nodewright {
namespace {

constexpr rlim_t kMostDescriptors = 1 << 20;  // the kernel's own default of fs.nr_open
// For devices, checkpoints, kernels and sockets of ranks: eight GPUs hold 200.
constexpr size_t kLeastForEngine = 16, kMostForEngine = 512;
constexpr size_t kLeastConnections = 4;

}  // namespace

size_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;  // what POSIX systems have at least, in practice
  rlimit raised = limit;
  raised.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMostDescriptors));
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<size_t>(std::min(limit.rlim_cur, kMostDescriptors));
}

size_t open_descriptors_now() {
  size_t count = 0;
  std::error_code problem;
  for (std::filesystem::directory_iterator each("/proc/self/fd", problem), end; !problem && each != end;
       each.increment(problem))
    ++count;
  return count;
}

HttpLimits fitted(HttpLimits limits, size_t descriptors, size_t open) {
  const size_t engine = std::clamp(descriptors / 4, kLeastForEngine, kMostForEngine);
  const size_t room = descriptors > open + engine ? descriptors - open - engine : 0;
  if (room >= limits.connections + limits.kept_connections + limits.told_connections) return limits;
  limits.kept_connections = std::min(limits.kept_connections, std::max<size_t>(room / 8, 1));
  limits.told_connections = std::min(limits.told_connections, room / 8);
  const size_t taken = limits.kept_connections + limits.told_connections;
  limits.connections = std::min(limits.connections, std::max(room > taken ? room - taken : 0, kLeastConnections));
  return limits;
}

}  // namespace nodewright
