#include "base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace nodewright {
namespace {

// Damerau and Levenshtein's, of words of a few letters.
size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> edits(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, edits[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  return edits[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> names) {
  constexpr size_t kLongest = 64;  // what is longer is no word that somebody meant
  if (word.size() < 2 || word.size() > kLongest) return "";
  std::string nearest;
  size_t least = word.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t edits = word.size() > 3 && name.starts_with(word) ? 1 : edits_between(word, name);
    if (edits < least) least = edits, nearest = name;
  }
  return nearest;
}

}  // namespace nodewright
