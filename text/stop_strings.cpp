// Source of StopSet: the failure function of Knuth, Morris and Pratt, "Fast pattern matching in strings", 1977.
#include "text/stop_strings.h"

#include <algorithm>

namespace nodewright {

StopSet::StopSet(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (size_t i = 0; i < strings_.size(); ++i) {
    std::vector<uint32_t>& shorter = shorter_.emplace_back(strings_[i].size(), 0);
    for (uint32_t k = 1; k < shorter.size(); ++k) shorter[k] = after(i, shorter[k - 1], strings_[i][k]);
  }
}

uint32_t StopSet::after(size_t i, uint32_t matched, char byte) const {
  const std::string& string = strings_[i];
  while (matched > 0 && string[matched] != byte) matched = shorter_[i][matched - 1];
  return matched + (string[matched] == byte ? 1 : 0);
}

bool StopStrings::push(TokenId id, bool may_stop) {
  if (stopped_) return true;
  return scan(stream_.push(id), may_stop);
}

// Moves to the text what begins no stop string.
bool StopStrings::scan(std::string_view more, bool may_stop) {
  const std::vector<std::string>& strings = set_->strings();
  for (const char byte : more) {
    held_ += byte;
    size_t longest = 0;  // of those that are complete
    for (size_t i = 0; i < strings.size(); ++i) {
      matched_bytes_[i] = set_->after(i, matched_bytes_[i], byte);
      if (matched_bytes_[i] < strings[i].size()) continue;
      if (!may_stop) {
        matched_bytes_[i] = set_->after_complete(i);
      } else if (strings[i].size() > longest) {
        longest = strings[i].size();
        matched_ = strings[i];
      }
    }
    if (longest == 0) continue;
    text_.append(held_, 0, held_.size() - longest);
    held_.clear();
    return stopped_ = true;
  }
  size_t keep = 0;  // bytes that may have begun a stop string
  for (const uint32_t matched : matched_bytes_) keep = std::max<size_t>(keep, matched);
  text_.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::finish() {
  if (stopped_) return;
  if (scan(stream_.flush(), true)) return;
  text_ += held_;
  held_.clear();
}

}  // namespace nodewright
