#include "serve/api/call_id.h"

#include <fmt/format.h>

#include <random>

namespace nodewright {

std::string random_id(std::string_view prefix) {
  thread_local std::mt19937_64 numbers = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  const uint64_t first = numbers(), second = numbers();
  return fmt::format("{}{:016x}{:016x}", prefix, first, second);
}

}  // namespace nodewright
