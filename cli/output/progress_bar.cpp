#include "cli/output/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "cli/output/say.h"
#include "engine/byte_size.h"

namespace nodewright::cli {
namespace {

// Columns of the terminal at stderr; 80 where it does not say.
size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

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
  // On one line: the bar gives way, then the end of the text. The last column stays free, where some terminals wrap.
  constexpr size_t kWidest = 30, kNarrowest = 5;
  const std::string after = figures(done, total);
  const size_t columns = terminal_columns() - 1, words = what_.size() + after.size() + 4;  // blanks and brackets
  const size_t width = std::min(kWidest, columns > words ? columns - words : 0);
  std::string line = fmt::format("{} {}", what_, after);
  if (width >= kNarrowest) {
    const size_t filled = std::min(width, (static_cast<size_t>(percent) * width + 99) / 100);
    line = fmt::format("{} [{}{}] {}", what_, std::string(filled, '#'), std::string(width - filled, '.'), after);
  }
  draw("\r\033[K" + line.substr(0, columns));
}

std::string ProgressBar::figures(uint64_t done, uint64_t total) const {
  if (unit_ == Unit::things) return fmt::format("{} %", drawn_);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return fmt::format("{} of {}, {}/s", byte_size_text(done), byte_size_text(total),
                     byte_size_text(static_cast<double>(done) / std::max(seconds, 1e-6)));
}

}  // namespace nodewright::cli
