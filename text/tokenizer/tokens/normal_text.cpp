#include "text/tokenizer/tokens/normal_text.h"

#include "runtime/error.h"

namespace nodewright {

void check_normal_length(std::string_view normal) {
  constexpr std::size_t kLongest = std::size_t{1} << 28;  // bytes; 8 times the largest body that a server reads
  if (normal.size() <= kLongest) return;
  throw Error({.doing = "normalize text",
               .detail = "it becomes longer than " + std::to_string(kLongest) + " bytes",
               .advice = "send a shorter text"});
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  replaced.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    replaced.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
    check_normal_length(replaced);
  }
  return replaced.append(text.substr(done));
}

}  // namespace nodewright
