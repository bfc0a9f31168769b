// What a test may take: processor time, so that what else the machine does fails no test.
#pragma once

#include <ctime>
#include <functional>

namespace nodewright::test {

inline double seconds_of(const std::function<void()>& run) {
  const std::clock_t begin = std::clock();
  run();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// A bound of `idle` seconds, stated for an optimised build on a core of its own. A core that others share was seen to
// work a third as fast, and one five times as busy loses its caches besides; a debug or sanitizer build may take ten
// times as long. What these bounds look for, work that grows with the square, is a thousand times over them.
inline double allowed_seconds(double idle) {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  return 15 * idle;
#else
  return 150 * idle;
#endif
}

}  // namespace nodewright::test
