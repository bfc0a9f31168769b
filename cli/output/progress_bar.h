// A bar on stderr, drawn only where stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace nodewright::cli {

class ProgressBar {
 public:
  enum class Unit { things, bytes };  // bytes are shown with their number and their rate

  explicit ProgressBar(std::string what, Unit unit = Unit::things);
  ~ProgressBar() { wipe(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t total);
  void wipe();

 private:
  std::string figures(uint64_t done, uint64_t total) const;

  std::string what_;
  Unit unit_;
  bool terminal_;
  int drawn_ = -1;  // percent on the screen
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace nodewright::cli
