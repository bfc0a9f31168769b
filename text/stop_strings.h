// Stop strings of one request, found in its text as it comes, across tokens: whole characters only, as TextStream gives
// them. What could still begin a stop string is held back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_stream.h"

namespace nodewright {

// The strings, ready to be looked for by any number of requests. Immutable.
class StopSet {
 public:
  // None of them empty.
  explicit StopSet(std::vector<std::string> strings);

  const std::vector<std::string>& strings() const { return strings_; }
  // How many bytes of string `i` the text ends with, when it ended with `matched`, which are not all, and `byte`
  // follows. Takes a step for each byte of a text, on average.
  uint32_t after(size_t i, uint32_t matched, char byte) const;
  // The same where it was complete, and does not count.
  uint32_t after_complete(size_t i) const { return shorter_[i].back(); }

 private:
  std::vector<std::string> strings_;
  std::vector<std::vector<uint32_t>> shorter_;  // [string][matched - 1] the next shorter beginning that it ends with
};

class StopStrings {
 public:
  // The tokenizer must outlive this. `strings`: none of them empty. `shown`: as TextStream has it.
  StopStrings(const Tokenizer& tokenizer, std::vector<std::string> strings, std::vector<TokenId> shown = {})
      : StopStrings(tokenizer, std::make_shared<const StopSet>(std::move(strings)), std::move(shown)) {}
  StopStrings(const Tokenizer& tokenizer, std::shared_ptr<const StopSet> set, std::vector<TokenId> shown = {})
      : stream_(tokenizer, true, TextStart::behind_prompt, std::move(shown)),
        set_(std::move(set)),
        matched_bytes_(set_->strings().size(), 0) {}

  // True when the text now holds a stop string: it ends before the one that is complete first, of those complete at
  // once before the one that began first, and takes no more tokens. `may_stop`: false while the request wants more;
  // what is then complete passes as text.
  bool push(TokenId id, bool may_stop = true);
  // No more tokens: what is held back is text.
  void finish();

  // The text so far, without what is held back.
  const std::string& text() const { return text_; }
  // The stop string that ended it; empty where none did.
  const std::string& matched() const { return matched_; }

 private:
  bool scan(std::string_view more, bool may_stop);

  TextStream stream_;
  std::shared_ptr<const StopSet> set_;
  std::vector<uint32_t> matched_bytes_;  // [string] of it that the text so far ends with
  std::string text_, held_, matched_;
  bool stopped_ = false;
};

}  // namespace nodewright
