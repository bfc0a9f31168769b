// The work that a rendering may still do, and its position: large values are paid for before they are made.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

namespace nodewright::jinja {

// Units are limited to this in all. A unit is about one evaluated expression, or 4 bytes made.
inline constexpr std::uint64_t kMostWork = 5'000'000;

class Work {
 public:
  Work(std::string file, std::time_t now) : file_(std::move(file)), now_(now) {}

  // Throws Error beyond kMostWork.
  void spend(std::uint64_t units);
  void spend_bytes(std::uint64_t bytes) { spend(bytes / 4 + 1); }

  // Throws Error naming the template, the current line and `detail`.
  [[noreturn]] void stop(const std::string& detail) const;

  std::time_t now() const { return now_; }

  int line = 0;

 private:
  std::string file_;
  std::time_t now_;
  std::uint64_t spent_ = 0;
};

}  // namespace nodewright::jinja
