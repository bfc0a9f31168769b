// What a person typed in earlier sessions: a file of one JSON string a line, readable by its owner alone, of bounded
// size. Sessions that run side by side append to it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright::cli {

inline constexpr size_t kTypedHistoryEntries = 1000;

// NODEWRIGHT_CHAT_HISTORY, or $XDG_STATE_HOME/nodewright/chat_history, or ~/.local/state/nodewright/chat_history. Empty
// where the first is empty or none of them is set.
std::filesystem::path typed_history_file();

class TypedHistory {
 public:
  // Reads the newest entries. An empty path keeps nothing; so does a file that cannot be used, since a conversation is
  // possible without one.
  explicit TypedHistory(std::filesystem::path file);

  const std::vector<std::string>& entries() const { return entries_; }  // that were there, oldest first

  // Appends it, unless it is the last one again or longer than 64 KiB.
  void add(const std::string& entry);

 private:
  std::filesystem::path file_;
  std::vector<std::string> entries_;
  std::string last_;
};

}  // namespace nodewright::cli
