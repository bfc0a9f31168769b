// Where a test finds the goldens and the program. A test program may run on a machine that did not build it, so the
// paths known at build time come last.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace nodewright::test {

// The checkout: $NODEWRIGHT_SOURCE_DIR, the working folder if it holds tests/golden, or where the build took place.
inline std::filesystem::path source_dir() {
  if (const char* named = std::getenv("NODEWRIGHT_SOURCE_DIR"); named != nullptr && *named != '\0') return named;
  if (std::filesystem::is_directory("tests/golden")) return std::filesystem::current_path();
  return NODEWRIGHT_SOURCE_DIR;
}

// The folder of the program `nodewright` and of lib/: $NODEWRIGHT_BINARY_DIR, or the one above this test program's.
inline std::filesystem::path binary_dir() {
  if (const char* named = std::getenv("NODEWRIGHT_BINARY_DIR"); named != nullptr && *named != '\0') return named;
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? std::filesystem::path(NODEWRIGHT_BINARY_DIR) : program.parent_path().parent_path();
}

}  // namespace nodewright::test
