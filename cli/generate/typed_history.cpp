#include "cli/generate/typed_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace nodewright::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostEntryBytes = size_t{64} << 10, kMostFileBytes = size_t{4} << 20;

class OpenHistory {
 public:
  // A regular file of this user, which nobody else may read from now on.
  OpenHistory(const fs::path& path, int flags) : file_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    struct stat about {};
    const bool ours = file_ >= 0 && fstat(file_, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid();
    if (ours && ((about.st_mode & 077) == 0 || fchmod(file_, 0600) == 0)) return;
    if (file_ >= 0) close(file_);
    file_ = -1;
  }
  ~OpenHistory() {
    if (file_ >= 0) close(file_);
  }
  OpenHistory(const OpenHistory&) = delete;
  OpenHistory& operator=(const OpenHistory&) = delete;

  explicit operator bool() const { return file_ >= 0; }
  std::string read_all() const {
    std::string text;
    char part[1 << 16];
    for (ssize_t got = 0; text.size() < 2 * kMostFileBytes && (got = read(file_, part, sizeof part)) > 0;)
      text.append(part, static_cast<size_t>(got));
    return text;
  }
  bool write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t put = write(file_, text.data(), text.size());
      if (put < 0 && errno != EINTR) return false;
      if (put > 0) text.remove_prefix(static_cast<size_t>(put));
    }
    return true;
  }

 private:
  int file_ = -1;
};

std::string line_of_entry(const std::string& entry) {
  return json(entry).dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

void make_private_folder(const fs::path& folder) {
  std::error_code unused;
  if (folder.empty() || fs::exists(folder, unused)) return;
  make_private_folder(folder.parent_path());
  mkdir(folder.c_str(), 0700);
}

void rewrite(const fs::path& file, const std::vector<std::string>& entries) {
  const fs::path beside = file.string() + ".part" + std::to_string(getpid());
  std::string text;
  for (const std::string& entry : entries) text += line_of_entry(entry);
  bool written = false;
  if (const OpenHistory out(beside, O_WRONLY | O_CREAT | O_EXCL); out) written = out.write_all(text);
  if (!written || std::rename(beside.c_str(), file.c_str()) != 0) std::remove(beside.c_str());
}

}  // namespace

fs::path typed_history_file() {
  const auto variable = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  if (const auto named = variable("NODEWRIGHT_CHAT_HISTORY")) return *named;
  fs::path state;
  if (const auto given = variable("XDG_STATE_HOME"); given && given->starts_with('/'))
    state = *given;
  else if (const auto home = variable("HOME"); home && home->starts_with('/'))
    state = fs::path(*home) / ".local" / "state";
  return state.empty() ? state : state / "nodewright" / "chat_history";
}

TypedHistory::TypedHistory(fs::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  make_private_folder(file_.parent_path());
  std::string text;
  {
    const OpenHistory in(file_, O_RDONLY | O_CREAT);
    if (!in) {
      file_.clear();
      return;
    }
    text = in.read_all();
  }
  size_t lines = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1, ++lines) {
    end = std::min(text.find('\n', begin), text.size());
    const json entry = json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                   text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (entry.is_string()) entries_.push_back(entry.get<std::string>());
  }
  if (entries_.size() > kTypedHistoryEntries)
    entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(kTypedHistoryEntries));
  size_t bytes = 0, kept = entries_.size();
  while (kept > 0 && (bytes += entries_[kept - 1].size()) <= kMostFileBytes / 4) --kept;
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(kept));
  if (lines > 2 * kTypedHistoryEntries || text.size() > kMostFileBytes) rewrite(file_, entries_);
  if (!entries_.empty()) last_ = entries_.back();
}

void TypedHistory::add(const std::string& entry) {
  if (file_.empty() || entry == last_ || entry.size() > kMostEntryBytes) return;
  last_ = entry;
  if (const OpenHistory out(file_, O_WRONLY | O_APPEND | O_CREAT); out) out.write_all(line_of_entry(entry));
}

}  // namespace nodewright::cli
