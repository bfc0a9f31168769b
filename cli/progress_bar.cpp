#include "cli/progress_bar.h"

#include <unistd.h>

#include <cstdio>

namespace nodewright::cli {

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (drawn_ >= 0) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::show(uint64_t done, uint64_t total) {
  if (!terminal_ || total == 0) return;
  const int percent = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * 100.0);
  if (percent == drawn_) return;
  drawn_ = percent;
  constexpr int kWidth = 30;
  char bar[kWidth + 1];
  for (int i = 0; i < kWidth; ++i) bar[i] = i * 100 < percent * kWidth ? '#' : '.';
  bar[kWidth] = '\0';
  std::fprintf(stderr, "\r\033[K%s [%s] %d %%", what_.c_str(), bar, percent);
  std::fflush(stderr);
}

}  // namespace nodewright::cli
