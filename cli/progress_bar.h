// A bar on stderr, drawn only where stderr is a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace nodewright::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // wipes it
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t total);

 private:
  std::string what_;
  bool terminal_;
  int drawn_ = -1;  // percent on the screen
};

}  // namespace nodewright::cli
