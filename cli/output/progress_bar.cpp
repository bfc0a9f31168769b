#include "cli/output/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/output/say.h"
#include "engine/byte_size.h"

namespace nodewright::cli {

ProgressBar::ProgressBar(std::string what, Unit unit)
    : what_(std::move(what)), unit_(unit), terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::wipe() {
  if (drawn_ >= 0) draw("\r\033[K");
  drawn_ = -1;
}

void ProgressBar::show(uint64_t done, uint64_t total) {
  if (!terminal_ || total == 0) return;
  const int percent = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * 100.0);
  if (percent == drawn_) return;
  if (percent < drawn_) start_ = std::chrono::steady_clock::now();  // the next of several
  drawn_ = percent;
  constexpr int kWidth = 30;
  char bar[kWidth + 1];
  for (int i = 0; i < kWidth; ++i) bar[i] = i * 100 < percent * kWidth ? '#' : '.';
  bar[kWidth] = '\0';
  draw(fmt::format("\r\033[K{} [{}] {}", what_, bar, figures(done, total)));
}

std::string ProgressBar::figures(uint64_t done, uint64_t total) const {
  if (unit_ == Unit::things) return fmt::format("{} %", drawn_);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return fmt::format("{} of {}, {}/s", byte_size_text(done), byte_size_text(total),
                     byte_size_text(static_cast<double>(done) / std::max(seconds, 1e-6)));
}

}  // namespace nodewright::cli
