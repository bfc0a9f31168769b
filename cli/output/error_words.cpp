#include "cli/output/error_words.h"

#include "runtime/driver.h"

namespace nodewright::cli {

std::string error_words(const Error& error) {
  std::string words = error.what();
  if (const size_t at = words.find(kUseCpuDriver); at != std::string::npos)
    words.replace(at, kUseCpuDriver.size(), "run with --device cpu to use the CPU driver");
  return words;
}

}  // namespace nodewright::cli
